#include "server/facts.h"

#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/samplers.h"

static void put_list(struct json *j, const char *key, const char *const *texts)
{
    json_key_array(j, key);
    for (; *texts; texts++) json_put_string(j, *texts);
    json_end_array(j);
}

void facts_health(const char *status, struct buf *out)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_string(&j, "status", status);
    json_end_object(&j);
    buf_add_char(out, '\n');
}

/* ---- OpenAI and Anthropic --------------------------------------------------------------- */

/* "object" and "created" are OpenAI's, "type", "created_at" and "display_name" Anthropic's. */
static void put_model(struct json *j, const struct facts *f)
{
    const struct carat_model_info *info = carat_model_info(f->model);
    char since[CALENDAR_TEXT];
    calendar_utc(f->since, since);
    json_begin_object(j);
    json_key_string(j, "id", f->alias);
    json_key_string(j, "object", "model");
    json_key_string(j, "type", "model");
    json_key_int(j, "created", f->since);
    json_key_string(j, "created_at", since);
    json_key_string(j, "owned_by", "carat");
    json_key_string(j, "display_name", info->name[0] ? info->name : f->alias);
    json_key_int(j, "max_model_len", f->n_ctx);
    json_key_object(j, "meta");
    json_key_int(j, "n_ctx", f->n_ctx);
    json_key_int(j, "n_ctx_train", info->n_ctx_train);
    json_key_int(j, "n_params", info->n_params);
    json_key_int(j, "n_vocab", info->n_vocab);
    json_key_int(j, "n_embd", info->n_embd);
    json_key_int(j, "size", (int64_t)info->file_bytes);
    json_key_string(j, "quant", info->quantisation);
    json_end_object(j);
    json_end_object(j);
}

void facts_model(const struct facts *f, struct buf *out)
{
    struct json j = {.out = out};
    put_model(&j, f);
    buf_add_char(out, '\n');
}

void facts_models(const struct facts *f, struct buf *out)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_string(&j, "object", "list");
    json_key_array(&j, "data");
    put_model(&j, f);
    json_end_array(&j);
    json_key_string(&j, "first_id", f->alias);
    json_key_string(&j, "last_id", f->alias);
    json_key_bool(&j, "has_more", false);
    json_end_object(&j);
    buf_add_char(out, '\n');
}

/* ---- llama-server ----------------------------------------------------------------------- */

static void put_sampling(struct json *j, const struct carat_sampling *p)
{
    json_key_float(j, "temperature", p->temperature);
    json_key_int(j, "top_k", p->top_k);
    json_key_float(j, "top_p", p->top_p); /* 0: the likeliest token only, as answers use it */
    json_key_float(j, "min_p", p->min_p);
    json_key_float(j, "repeat_penalty", p->repeat_penalty > 0 ? p->repeat_penalty : 1);
    json_key_float(j, "presence_penalty", p->presence_penalty);
    json_key_float(j, "frequency_penalty", p->frequency_penalty);
    json_key_int(j, "repeat_last_n", p->repeat_last_n);
    json_key_float(j, "typical_p", p->typical_p);
    json_key_float(j, "top_n_sigma", p->top_n_sigma);
    json_key_float(j, "xtc_probability", p->xtc_probability);
    json_key_float(j, "xtc_threshold", p->xtc_threshold);
    json_key_float(j, "dynatemp_range", p->dynatemp_range);
    json_key_float(j, "dynatemp_exponent", p->dynatemp_exponent);
    json_key_float(j, "dry_multiplier", p->dry_multiplier);
    json_key_float(j, "dry_base", p->dry_base);
    json_key_int(j, "dry_allowed_length", p->dry_allowed_length);
    json_key_int(j, "dry_penalty_last_n", p->dry_penalty_last_n);
    json_key_array(j, "dry_sequence_breakers");
    for (size_t i = 0; i < p->n_dry_breakers; i++) json_put_string(j, p->dry_breakers[i]);
    json_end_array(j);
    json_key_int(j, "mirostat", p->mirostat);
    json_key_float(j, "mirostat_tau", p->mirostat_tau);
    json_key_float(j, "mirostat_eta", p->mirostat_eta);
    json_key_array(j, "samplers");
    for (const char *c = p->samplers; sampler_name(*c); c++) json_put_string(j, sampler_name(*c));
    json_end_array(j);
}

/* [[first, last], ...]: ids that are no text. */
static void put_special(struct json *j, const carat_model *model)
{
    int32_t n = carat_model_info(model)->n_vocab;
    json_key_array(j, "special_tokens");
    for (int32_t id = 0, last; id < n; id = last + 1) {
        last = id;
        if (!carat_token_is_control(model, id)) continue;
        while (last + 1 < n && carat_token_is_control(model, last + 1)) last++;
        json_begin_array(j);
        json_int(j, id);
        json_int(j, last);
        json_end_array(j);
    }
    json_end_array(j);
}

void facts_props(const struct facts *f, struct buf *out)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_object(&j, "default_generation_settings");
    json_key_int(&j, "n_ctx", f->n_ctx);
    json_key_object(&j, "params");
    put_sampling(&j, &f->sampling);
    json_end_object(&j);
    json_end_object(&j);
    json_key_int(&j, "total_slots", f->n_seq);
    json_key_string(&j, "model_alias", f->alias);
    json_key_string(&j, "build_info", f->build);
    json_key_int(&j, "n_vocab", carat_model_info(f->model)->n_vocab);
    put_special(&j, f->model);
    json_key_object(&j, "modalities");
    json_key_bool(&j, "vision", false);
    json_key_bool(&j, "audio", false);
    json_end_object(&j);
    json_key_bool(&j, "is_sleeping", false);
    json_end_object(&j);
    buf_add_char(out, '\n');
}

/* Which sequence a request has is the engine's business, so busy slots are told as the first. */
void facts_slots(const struct facts *f, struct buf *out)
{
    struct json j = {.out = out};
    json_begin_array(&j);
    for (int32_t i = 0; i < f->n_seq; i++) {
        json_begin_object(&j);
        json_key_int(&j, "id", i);
        json_key_int(&j, "n_ctx", f->n_ctx);
        json_key_bool(&j, "is_processing", i < f->n_busy);
        json_end_object(&j);
    }
    json_end_array(&j);
    buf_add_char(out, '\n');
}

/* ---- ollama ----------------------------------------------------------------------------- */

static void put_details(struct json *j, const struct facts *f)
{
    static const char *const families[] = {"gemma4", NULL};
    const struct carat_model_info *info = carat_model_info(f->model);
    char size[32];
    bool is_big = info->n_params >= 1000000000;
    snprintf(size, sizeof size, "%.1f%c", (double)info->n_params / (is_big ? 1e9 : 1e6),
             is_big ? 'B' : 'M');
    json_key_object(j, "details");
    json_key_string(j, "parent_model", "");
    json_key_string(j, "format", "gguf");
    json_key_string(j, "family", families[0]);
    put_list(j, "families", families);
    json_key_string(j, "parameter_size", size);
    json_key_string(j, "quantization_level", info->quantisation);
    json_end_object(j);
}

/* A name for the model: clients show its first digits. It is no checksum of the file. */
static void put_digest(struct json *j, const struct facts *f)
{
    enum { WORDS = 4, DIGITS = 16 };
    const struct carat_model_info *info = carat_model_info(f->model);
    char text[WORDS * DIGITS + 1];
    for (size_t i = 0; i < WORDS; i++) {
        struct hash_key key = {.low = i, .high = info->file_bytes};
        uint64_t word = hash_bytes(key, f->alias, strlen(f->alias));
        snprintf(text + i * DIGITS, DIGITS + 1, "%016llx", (unsigned long long)word);
    }
    json_key_string(j, "digest", text);
}

void facts_tags(const struct facts *f, bool is_running, struct buf *out)
{
    const struct carat_model_info *info = carat_model_info(f->model);
    struct json j = {.out = out};
    char since[CALENDAR_TEXT];
    calendar_utc(f->since, since);
    json_begin_object(&j);
    json_key_array(&j, "models");
    json_begin_object(&j);
    json_key_string(&j, "name", f->alias);
    json_key_string(&j, "model", f->alias);
    json_key_string(&j, "modified_at", since);
    json_key_int(&j, "size", (int64_t)info->file_bytes);
    put_digest(&j, f);
    put_details(&j, f);
    if (is_running) { /* for ever: the model stays loaded as long as the server runs */
        json_key_string(&j, "expires_at", "9999-12-31T23:59:59Z");
        json_key_int(&j, "size_vram", (int64_t)info->file_bytes);
        json_key_int(&j, "context_length", f->n_ctx);
    }
    json_end_object(&j);
    json_end_array(&j);
    json_end_object(&j);
    buf_add_char(out, '\n');
}

void facts_show(const struct facts *f, struct buf *out)
{
    static const char *const capabilities[] = {"completion", "tools", "thinking", NULL};
    const struct carat_model_info *info = carat_model_info(f->model);
    struct json j = {.out = out};
    char since[CALENDAR_TEXT];
    calendar_utc(f->since, since);
    json_begin_object(&j);
    json_key_string(&j, "modelfile", "");
    json_key_string(&j, "parameters", "");
    json_key_string(&j, "template", "");
    put_details(&j, f);
    json_key_object(&j, "model_info");
    json_key_string(&j, "general.architecture", "gemma4");
    json_key_string(&j, "general.basename", info->name[0] ? info->name : f->alias);
    json_key_int(&j, "general.parameter_count", info->n_params);
    json_key_int(&j, "gemma4.context_length", f->n_ctx);
    json_key_int(&j, "gemma4.embedding_length", info->n_embd);
    json_key_int(&j, "gemma4.block_count", info->n_layer);
    json_end_object(&j);
    put_list(&j, "capabilities", capabilities);
    json_key_string(&j, "modified_at", since);
    json_end_object(&j);
    buf_add_char(out, '\n');
}

/* Clients compare this with the version of ollama that they need. It is the first one that has all
 * three of the APIs here: ollama's, responses (since 0.13.3) and messages (since 0.14.0). */
void facts_version(struct buf *out)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_string(&j, "version", "0.14.0");
    json_key_string(&j, "carat", carat_version());
    json_end_object(&j);
    buf_add_char(out, '\n');
}
