/* UTF-8: one decoder for tokenizer, JSON and streaming. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one code point from text[0, length), length >= 1. Returns its byte count (1..4), or 0 when
 * the bytes are not valid UTF-8 (overlong, surrogate, above U+10FFFF, cut short). */
int utf8_read(const char *text, size_t length, uint32_t *code_point);

/* Bytes at the beginning of text that are valid UTF-8: `length` if all are. */
size_t utf8_valid_prefix(const char *text, size_t length);

/* The character that two units of UTF-16 (\uXXXX in JSON and patterns) are halves of; 0: none. */
uint32_t utf16_pair(uint32_t high, uint32_t low);

/* Writes 1..4 bytes to out, returns how many. */
int utf8_write(uint32_t code_point, char out[4]);

/* Bytes at the end of text (0..3) that begin a code point which later bytes may complete. A stream
 * has to hold them back. */
size_t utf8_incomplete_tail(const char *text, size_t length);

/* Whether a terminal might obey the character instead of showing it, or show its neighbours in
 * another order: controls (C0, DEL, C1), separators of lines, marks of direction. */
bool utf8_is_unprintable(uint32_t code_point);

/* Which text comes first when both are in lower case, by code points: the order in which the chat
 * template sorts keys (Jinja's dictsort). Below, equal or above 0. Knows Latin, Greek and Cyrillic
 * letters. */
int utf8_compare_lower(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
