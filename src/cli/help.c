/* `carat help`, `carat help --markdown` and `carat man`: three forms of the same tables, with one
 * longer text for each command. */
#include "cli/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "carat.h"
#include "cli/borrowed.h"
#include "cli/command.h"
#include "cli/load_key_list.h"
#include "cli/session.h"
#include "cli/terminal.h"

/* What the option list cannot say. One paragraph a line; lines that begin with a blank are
 * examples. */
static const char *const details[COMMAND_COUNT] = {
    [COMMAND_RUN] =
        "Without a prompt and with a terminal this is `carat chat`. Piped input is appended to the "
        "prompt. Standard output carries only the answer; thoughts and timings go to standard "
        "error. Ctrl-C stops the answer. `carat -m MODEL -p PROMPT` is the same.\n"
        "  carat run demo \"Tell me a story about a dog\"\n"
        "  git diff | carat run model.gguf \"write a commit message\"\n",
    [COMMAND_CHAT] =
        "Type a message and press Enter; begin and end a longer one with \"\"\". /help lists the "
        "commands. Ctrl-C stops an answer, Ctrl-D leaves.\n",
    [COMMAND_SERVE] =
        "With `carat serve demo` there is a page at http://127.0.0.1:8080/, and clients of OpenAI "
        "take http://127.0.0.1:8080/v1, those of Anthropic and ollama http://127.0.0.1:8080. "
        "Other machines are served with --host 0.0.0.0 and keys. Ctrl-C lets running answers end, "
        "a second one does not.\n"
        "  carat serve demo --host 0.0.0.0 --api-key-file keys --tls-cert cert.pem --tls-key "
        "key.pem\n",
    [COMMAND_PULL] =
        "NAME is hf:USER/REPO[:QUANT][/FILE.gguf], ollama:NAME[:TAG], a NAME of ollama's registry, "
        "or the https address of a .gguf file. All parts of a split model are loaded. What is "
        "interrupted goes on where it ended; a file has its name only when it is whole and its "
        "sha256 is right. The path is printed.\n"
        "  carat pull hf:unsloth/gemma-4-E2B-it-GGUF:Q8_0\n"
        "  carat pull ollama:gemma4:e2b\n",
    [COMMAND_RM] = "Only what pull has loaded is removed. Without a terminal --yes is needed.\n"
                   "  carat rm hf:unsloth/gemma-4-E2B-it-GGUF:Q8_0\n",
    [COMMAND_VERIFY] =
        "Without NAME all models are read whose checksum is known. Exit status 8: one "
        "differs.\n",
    [COMMAND_SHOW] = "Without --kv or --tensors a summary is printed. A malformed file gives exit "
                     "status 3 and the place of the first fault.\n",
    [COMMAND_TOKENIZE] =
        "Text comes from the arguments, else from standard input, byte for byte. Without --special "
        "the marks that llama.cpp calls user-defined (<|channel>, <|tool_call>, ...) count even in "
        "plain text, as they do there; --plain switches that off too.\n"
        "  printf 'Hello' | carat tokenize demo --json\n",
    [COMMAND_DETOKENIZE] = "Ids come from the arguments, else from standard input.\n"
                           "  carat detokenize demo 2 105\n",
    [COMMAND_TEMPLATE] =
        "REQUEST.json is a chat request as the OpenAI API has it (\"messages\", \"tools\", "
        "\"enable_thinking\", \"add_generation_prompt\", \"continue_final_message\"), or an object "
        "with such a \"request\"; - reads standard input.\n"
        "  carat template --size large request.json\n",
    [COMMAND_LOGITS] = "Writes rows of 32-bit little-endian floats, one a position, after the "
                       "final soft cap. One line of JSON on standard output says how many.\n"
                       "  carat logits demo --tokens 2,5,7 --all -o logits.f32\n",
    [COMMAND_PERPLEXITY] =
        "The text is cut into chunks of -c tokens, each begins with <bos>, and the second half of "
        "each is scored, as llama.cpp does. --save-logits keeps the predictions; --kl compares "
        "another file or setting with them.\n",
    [COMMAND_IMATRIX] =
        "Reads a text in chunks of -c tokens and adds up, for each column of the layers' weights, "
        "the squares of what is multiplied with it: what `carat quantize --imatrix` takes. Some "
        "hundred chunks of text like that of later use are enough. Take the model in the best "
        "type that there is memory for.\n"
        "  carat imatrix model-Q8_0.gguf -f text.txt -o imatrix.gguf --chunks 200\n",
    [COMMAND_QUANTIZE] =
        "TYPE is Q4_K_M, Q4_K_S, Q5_K_M, Q5_K_S, Q6_K, Q8_0, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, IQ4_XS, "
        "IQ4_NL, IQ3_S, IQ3_XXS, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4_MOE, F16, BF16 or F32; "
        "with --imatrix also IQ2_M, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M or IQ1_S. Take a file in BF16 or "
        "F16. "
        "In a mixture such as Q4_K_M, values, outputs of feed-forward layers and the table of "
        "tokens have better types in some layers. Printed are types, sizes and the relative error "
        "of the weights. An importance matrix is a file of llama-imatrix.\n"
        "  carat quantize gemma-4-12b-it-BF16.gguf gemma-4-12b-it-Q4_K_M.gguf Q4_K_M\n"
        "  carat quantize model.gguf --dry-run IQ4_XS --tensor-type attn_v=Q6_K\n"
        "  carat quantize --imatrix imatrix.gguf model-BF16.gguf model-IQ2_M.gguf IQ2_M\n",
    [COMMAND_BENCH] =
        "Tests, columns and JSON keys are those of llama-bench, with n_users added: ppN "
        "(N prompt tokens), tgN (N generated), \"@ dN\" (after N tokens of context). Every "
        "combination of the lists is measured; a setting has a column when it was given or its "
        "values differ.\n"
        "  carat bench demo -p 512 -n 128 -d 0,256 -r 3 -o json\n"
        "--load sends requests as many users would, to one engine in this process, and reports "
        "times to the first token, between tokens and in the queue; rows of -o json have the keys "
        "of vLLM's benchmark. Tokens are random, answers as long as asked. Several --load are "
        "groups of requests at the same time.\n"
        "  carat bench demo --load users=4,in=200,in-spread=0.5,out=32,goodput=ttft:150,tpot:20\n"
        "  carat bench demo --load name=chat,users=4,requests=4,out=200,during=long "
        "--load name=long,in=400,out=4,after=chat\n",
    [COMMAND_CONFIG] =
        "COMMAND is the one whose options are shown (default: serve); with MODEL, the section of "
        "that model counts. Keys of the file are long names of options; lines that begin with # "
        "are comments.\n"
        "  [default]\n"
        "  temp = 0.7\n"
        "  [e4b]\n"
        "  ctx-size = 32k\n",
    [COMMAND_COMPLETION] = "  carat completion bash > ~/.local/share/bash-completion/"
                           "completions/carat\n",
};

enum { COLUMN = 28, WIDTH = 96 };

/* Words of `text` from column `at` on, broken at WIDTH and indented by `indent`. */
static void print_wrapped(FILE *out, const char *text, int at, int indent)
{
    bool is_first = true;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!is_first && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (!is_first) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", n, text);
        at += n;
        text += n + (text[n] == ' ');
        is_first = false;
    }
    fputc('\n', out);
}

static void print_details(FILE *out, enum command_id command)
{
    for (const char *at = details[command]; at && *at;) {
        int n = (int)strcspn(at, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", n, at);
        if (line[0] == ' ')
            fprintf(out, "%s\n", line);
        else
            print_wrapped(out, line, 0, 0);
        at += n + (at[n] == '\n');
    }
}

/* "-c, --ctx-size N": short spellings in front. */
static void option_heading(enum option_id id, char *out, size_t size)
{
    char spelling[64];
    size_t used = 0;
    for (int n = 1; option_spelling(id, n, spelling, sizeof spelling); n++)
        if (used < size) used += (size_t)snprintf(out + used, size - used, "%s, ", spelling);
    const struct option_spec *spec = &option_specs[id];
    if (used < size)
        snprintf(out + used, size - used, "--%s%s%s", spec->name, spec->value[0] ? " " : "",
                 spec->value);
}

/* A name in the left column, its help in the right one. */
static void print_row(FILE *out, const char *heading, const char *help)
{
    int n = fprintf(out, "  %s", heading);
    if (n >= COLUMN - 1) {
        fputc('\n', out);
        n = 0;
    }
    fprintf(out, "%*s", COLUMN - n, "");
    print_wrapped(out, help, COLUMN, COLUMN);
}

static void print_option(FILE *out, enum option_id id)
{
    const struct option_spec *spec = &option_specs[id];
    char heading[256], help[512];
    option_heading(id, heading, sizeof heading);
    bool has_preset = spec->preset[0] != '\0' && spec->kind != KIND_FLAG;
    snprintf(help, sizeof help, "%s%s%s%s", spec->help, has_preset ? " (default: " : "",
             has_preset ? spec->preset : "", has_preset ? ")" : "");
    print_row(out, heading, help);
}

/* What --load can say. */
#define VALUE_COUNT "N"
#define VALUE_REAL "R"
#define VALUE_NAME "NAME"
#define VALUE_SWITCH "on|off"
#define VALUE_FILE "FILE"
#define VALUE_GOALS "GOALS"
static const struct load_key {
    const char *name, *help;
} load_keys[] = {
#define X(name, kind, member, low, high, help) {name "=" VALUE_##kind, help},
    LOAD_KEY_LIST(X)
#undef X
};
enum { LOAD_KEYS = sizeof load_keys / sizeof *load_keys };

static void print_load_keys(FILE *out)
{
    fprintf(out, "\nkeys of --load, separated by commas:\n");
    for (int i = 0; i < LOAD_KEYS; i++) print_row(out, load_keys[i].name, load_keys[i].help);
}

/* ---- Of other programs ------------------------------------------------------------------ */

static const char *const borrowed_titles[BORROWED_KINDS] = {
    [BORROWED_IGNORED] = "accepted from lines of llama.cpp and ollama, without effect",
    [BORROWED_BECOMES] = "accepted from such lines, with the meaning of an option above",
    [BORROWED_REFUSED] = "refused by name, unless the value changes nothing",
};

/* The spellings of one kind that a command takes, separated by blanks, each once. */
static void add_spellings(struct buf *out, enum command_id command, enum borrowed_kind kind)
{
    char spelling[64], padded[68];
    for (int i = 0; i < BORROWED_COUNT; i++) {
        const struct borrowed_spec *row = &borrowed_specs[i];
        if (!(row->commands >> command & 1u) || borrowed_spec_kind(row) != kind) continue;
        for (int n = 0; borrowed_spelling(row, n, spelling, sizeof spelling); n++) {
            bool is_own = option_find(command, spelling) != OPT_COUNT;
            if (is_own || borrowed_find(command, spelling) != row) continue; /* listed already */
            snprintf(padded, sizeof padded, "%s%s", out->length ? " " : "", spelling);
            buf_add_text(out, padded);
        }
    }
}

static void print_borrowed(FILE *out, enum command_id command)
{
    for (int kind = 0; kind < BORROWED_KINDS; kind++) {
        struct buf text = {0};
        add_spellings(&text, command, (enum borrowed_kind)kind);
        if (text.length) {
            fprintf(out, "\n%s:\n  ", borrowed_titles[kind]);
            print_wrapped(out, buf_text(&text), 2, 2);
        }
        buf_deinit(&text);
    }
}

void help_overview(FILE *out)
{
    fprintf(out,
            "carat %s: Gemma 4 language models from GGUF files\n\n"
            "usage: carat COMMAND [ARGUMENTS] [OPTIONS]\n\n",
            CARAT_VERSION);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-12s %s\n", command_specs[i].name, command_specs[i].summary);
    fprintf(out,
            "\n`carat help COMMAND` explains a command and its options. MODEL is a path, or a "
            "name\nsuch as demo that is looked up in $CARAT_MODELS, ./models and the folders "
            "of the\ninstallation. Every option can be set as CARAT_<OPTION> in the "
            "environment, or in a\nconfig file, which `carat config` shows.\n"
            "Exit status: 0 done, 1 failure, 2 wrong usage, 3 model file, 4 memory, "
            "5 device,\n6 network, 7 address taken, 8 checksum, 130 Ctrl-C, 143 terminated.\n");
}

void help_command(enum command_id command)
{
    const struct command_spec *spec = &command_specs[command];
    printf("carat %s: %s\n\nusage: carat %s%s%s [OPTIONS]\n\n", spec->name, spec->summary,
           spec->name, spec->arguments[0] ? " " : "", spec->arguments);
    print_details(stdout, command);
    if (details[command]) putchar('\n');
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_applies((enum option_id)i, command)) print_option(stdout, (enum option_id)i);
    if (command == COMMAND_BENCH) print_load_keys(stdout);
    print_borrowed(stdout, command);
}

/* `carat help --temp`: that option of every command that has it. Returns the exit status. */
static int help_option(const char *spelling)
{
    struct carat_error err = {0};
    bool is_known = false;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!option_is_spelled((enum option_id)i, spelling)) continue;
        printf("%s", is_known ? "\n" : "");
        for (int c = 0, n = 0; c < COMMAND_COUNT; c++)
            if (option_applies((enum option_id)i, (enum command_id)c))
                printf("%s%s", n++ ? ", " : "carat ", command_specs[c].name);
        printf(":\n");
        print_option(stdout, (enum option_id)i);
        is_known = true;
    }
    for (int c = 0; c < COMMAND_COUNT && !is_known; c++) {
        const struct borrowed_spec *row = borrowed_find((enum command_id)c, spelling);
        if (!row) continue;
        printf("%s: %s; see `carat help %s`\n", spelling, borrowed_titles[borrowed_spec_kind(row)],
               command_specs[c].name);
        is_known = true;
    }
    if (is_known) return 0;
    unknown_option(COMMAND_HELP, spelling, &err);
    return report(&err);
}

/* ---- A document ------------------------------------------------------------------------- */

static void markdown_option(enum option_id id)
{
    const struct option_spec *spec = &option_specs[id];
    char heading[256];
    option_heading(id, heading, sizeof heading);
    printf("| `");
    for (const char *c = heading; *c; c++) printf(*c == '|' ? "\\|" : "%c", *c);
    printf("` | %s | %s |\n", spec->kind == KIND_FLAG ? "" : spec->preset, spec->help);
}

static void markdown_load_keys(void)
{
    printf("\n| key of `--load` | meaning |\n| --- | --- |\n");
    for (int i = 0; i < LOAD_KEYS; i++) {
        printf("| `");
        for (const char *c = load_keys[i].name; *c; c++) printf(*c == '|' ? "\\|" : "%c", *c);
        printf("` | %s |\n", load_keys[i].help);
    }
}

/* What other programs' options do here; one row for each list of spellings. */
static void markdown_borrowed(void)
{
    printf("\n## Options of other programs\n\n"
           "Lines written for llama.cpp and ollama may hold these besides the options above. What "
           "changes\nnothing here is named in one note; what cannot be done is refused by name.\n\n"
           "| option | value | what it does here |\n| --- | --- | --- |\n");
    for (int i = 0; i < BORROWED_COUNT; i++) {
        const struct borrowed_spec *row = &borrowed_specs[i];
        printf("| `%s` | ", row->spellings);
        if (row->accepted[0] && strcmp(row->accepted, "*") != 0) {
            putchar('`');
            for (const char *c = row->accepted; *c; c++) printf(*c == '|' ? "` `" : "%c", *c);
            putchar('`');
        } else {
            printf("%s", row->value_name[0] ? "any" : "");
        }
        printf(" | ");
        if (row->target < OPT_COUNT)
            printf("`--%s %s`", option_specs[row->target].name, row->value);
        else
            printf("%s", row->accepted[0] ? "nothing" : "refused");
        const char *joint = row->accepted[0] ? "; otherwise refused: " : ": ";
        printf("%s%s |\n", row->why[0] ? joint : "", row->why);
    }
}

static void print_markdown(void)
{
    printf(
        "# Commands and options\n\n"
        "Made by `carat help --markdown`; the tables are `src/cli/command_list.h` and\n"
        "`src/cli/option_list.h`. Every option can be set as `CARAT_<OPTION>` in the "
        "environment\n(`--top-k` is `CARAT_TOP_K`) by any of its long names, and as `top-k = 40` "
        "in a config file\nbelow `[default]` or below `[MODEL]`: as it is typed, or its file "
        "without folder and `.gguf`.\nA flag goes before the environment, that before the "
        "section of the model, and that before\n`[default]`. `carat config COMMAND MODEL` prints "
        "the values and where\nthey came from. `--json=off` takes back what one of them "
        "switches on.\n");
    for (int c = 0; c < COMMAND_COUNT; c++) {
        const struct command_spec *spec = &command_specs[c];
        printf("\n## carat %s%s%s\n\n%c%s.\n\n", spec->name, spec->arguments[0] ? " " : "",
               spec->arguments, spec->summary[0] - 'a' + 'A', spec->summary + 1);
        printf("| option | default | meaning |\n| --- | --- | --- |\n");
        for (int i = 0; i < OPT_COUNT; i++)
            if (option_applies((enum option_id)i, (enum command_id)c))
                markdown_option((enum option_id)i);
        if (c == COMMAND_BENCH) markdown_load_keys();
    }
    markdown_borrowed();
}

/* Text in roff: a dash is a minus, a backslash is escaped, a leading dot or quote is hidden. */
static void print_roff(const char *text)
{
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '-')
            printf("\\-");
        else if (*text == '\\')
            printf("\\e");
        else
            putchar(*text);
    }
}

static void roff_command(enum command_id command)
{
    const struct command_spec *spec = &command_specs[command];
    printf(".SS \"");
    print_roff("carat ");
    print_roff(spec->name);
    putchar(' ');
    print_roff(spec->arguments);
    printf("\"\n%c%s.\n", spec->summary[0] - 'a' + 'A', spec->summary + 1);
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (!option_applies(id, command) || id == OPT_HELP || id == OPT_QUIET) continue;
        char heading[256];
        option_heading(id, heading, sizeof heading);
        printf(".TP\n.B ");
        print_roff(heading);
        putchar('\n');
        print_roff(option_specs[i].help);
        if (option_specs[i].preset[0] && option_specs[i].kind != KIND_FLAG) {
            printf(" (default: ");
            print_roff(option_specs[i].preset);
            putchar(')');
        }
        putchar('\n');
    }
}

int command_man(const struct options *o)
{
    struct carat_error err = {0};
    if (no_more_arguments(o, 0, &err) != CARAT_OK) return report(&err);
    printf(".TH CARAT 1 \"\" \"carat %s\" \"User Commands\"\n", CARAT_VERSION);
    printf(".SH NAME\ncarat \\- run Gemma 4 language models from GGUF files\n"
           ".SH SYNOPSIS\n.B carat\n.I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n"
           ".SH COMMANDS\n");
    for (int i = 0; i < COMMAND_COUNT; i++) roff_command((enum command_id)i);
    printf(".SH EXIT STATUS\n"
           "0 done, 1 failure, 2 wrong usage, 3 model file missing, malformed or unsupported, "
           "4 does not fit in memory, 5 no usable device, "
           "6 network or registry, 7 address taken, 8 checksum mismatch, 130 Ctrl\\-C, "
           "143 terminated.\n"
           ".SH ENVIRONMENT\n"
           "Every option can be set as CARAT_<OPTION>. CARAT_MODELS names a folder of models. "
           "NO_COLOR switches colours and progress lines off.\n"
           ".SH FILES\n"
           ".TP\n$XDG_CONFIG_HOME/carat/config, /etc/carat/config\n"
           "The first of them that is there is read, unless \\-\\-config names another: lines "
           "\\(lqtop\\-k = 40\\(rq below [default] or below [MODEL]. A flag goes before the "
           "environment, that before the section of the model, and that before [default].\n");
    return 0;
}

int command_help(const struct options *o)
{
    if (opt_is_set(o, OPT_MARKDOWN)) {
        print_markdown();
        return 0;
    }
    if (o->n_arguments == 0) {
        help_overview(stdout);
        return 0;
    }
    struct carat_error err = {0};
    if (o->n_arguments > 1) {
        err_set(&err, CARAT_EUSAGE, "help: one command or option expected, %zu found",
                o->n_arguments);
        err_hint(&err, "`carat help %s` is about the first", o->arguments[0]);
        return report(&err);
    }
    if (o->arguments[0][0] == '-') return help_option(o->arguments[0]);
    enum command_id command = command_find(o->arguments[0]);
    if (command != COMMAND_COUNT) {
        help_command(command);
        return 0;
    }
    err_set(&err, CARAT_EUSAGE, "help: unknown command %s", o->arguments[0]);
    const char *nearest = command_nearest(o->arguments[0]);
    err_hint(&err, nearest ? "did you mean %s?" : "`carat help` lists the commands", nearest);
    return report(&err);
}
