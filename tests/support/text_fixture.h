/* A made-up vocabulary, opened: the starting point for tests of the text folder. */
#ifndef SUPPORT_TEXT_FIXTURE_H
#define SUPPORT_TEXT_FIXTURE_H

#include "support/gguf_writer.h"
#include "text/vocab.h"

struct text_fixture {
    struct gguf_writer writer; /* the tokenizer's keys; change them before text_fixture_parse */
    struct buf image;
    struct gguf *g;
    struct vocab *v; /* NULL until it was opened */
};

/* 1024 tokens; 262144 are laid out as in the real vocabulary. */
void text_fixture_init(struct text_fixture *f, int n_vocab);
/* Writes and reads the file, but does not open the vocabulary. */
void text_fixture_parse(struct text_fixture *f);
/* Writes and reads the file and opens the vocabulary, which must succeed. */
void text_fixture_open(struct text_fixture *f, int n_vocab);
void text_fixture_deinit(struct text_fixture *f);

/* One vocabulary of 1024 tokens for all tests or inputs of a program, opened by the first call. */
const struct vocab *shared_vocab(void);
/* Set up and tear down a group of tests that use it. */
int shared_vocab_open(void **state);
int shared_vocab_close(void **state);

#endif
