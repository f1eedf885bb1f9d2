/* carat completion: scripts for bash, zsh and fish, written from the tables. They complete command
 * names, options, the words of a CHOICE option, and files. */
#include <string.h>

#include "cli/command.h"
#include "cli/terminal.h"

static void print_command_names(void)
{
    for (int i = 0; i < COMMAND_COUNT; i++) out_printf("%s%s", i ? " " : "", command_specs[i].name);
}

static void print_spellings(enum command_id command)
{
    char spelling[64];
    bool is_first = true;
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (!option_applies(id, command)) continue;
        for (int n = 0; option_spelling(id, n, spelling, sizeof spelling); n++) {
            out_printf("%s%s", is_first ? "" : " ", spelling);
            is_first = false;
        }
    }
}

/* "small|large" -> "small large"; brackets, which mark an optional word, are dropped */
static void print_words(const char *choices)
{
    for (const char *c = choices; *c; c++)
        if (*c != '[' && *c != ']') out_printf("%c", *c == '|' ? ' ' : *c);
}

/* A shell `case` of "command:option" patterns with the words of CHOICE options. */
static void print_choice_cases(const char *form)
{
    char spelling[64];
    for (int c = 0; c < COMMAND_COUNT; c++) {
        for (int i = 0; i < OPT_COUNT; i++) {
            enum option_id id = (enum option_id)i;
            bool is_choice = option_specs[i].kind == KIND_CHOICE;
            if (!is_choice || !option_applies(id, (enum command_id)c)) continue;
            out_printf("        ");
            for (int n = 0; option_spelling(id, n, spelling, sizeof spelling); n++)
                out_printf("%s%s:%s", n ? "|" : "", command_specs[c].name, spelling);
            out_printf(") %s\"", form);
            print_words(option_specs[i].value);
            out_text("\" ;;\n");
        }
    }
}

static void print_option_cases(const char *form)
{
    for (int c = 0; c < COMMAND_COUNT; c++) {
        out_printf("        %s) %s\"", command_specs[c].name, form);
        print_spellings((enum command_id)c);
        out_text("\" ;;\n");
    }
}

static void print_bash(void)
{
    out_text(
        "# bash completion for carat\n"
        "_carat() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    local words=\"\"\n"
        "    COMPREPLY=()\n"
        "    if [[ $COMP_CWORD -eq 1 || \"${COMP_WORDS[1]}:$COMP_CWORD\" == @(help|config):2 ]]; "
        "then\n"
        "        COMPREPLY=($(compgen -W \"");
    print_command_names();
    out_text("\" -- \"$cur\"))\n"
             "        return\n"
             "    fi\n"
             "    case \"${COMP_WORDS[1]}:$prev\" in\n");
    print_choice_cases("words=");
    out_text("    esac\n"
             "    if [ -n \"$words\" ]; then\n"
             "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
             "        return\n"
             "    fi\n"
             "    case \"${COMP_WORDS[1]}\" in\n");
    print_option_cases("words=");
    out_text("    esac\n"
             "    case \"$cur\" in\n"
             "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
             "        *) [ \"${COMP_WORDS[1]}\" = completion ] &&\n"
             "               COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\")) ;;\n"
             "    esac\n"
             "}\n"
             "complete -o default -F _carat carat\n");
}

static void print_zsh(void)
{
    out_text("#compdef carat\n"
             "_carat() {\n"
             "    local words_wanted=\"\"\n"
             "    if (( CURRENT == 2 )) || [[ \"$words[2]:$CURRENT\" == (help|config):3 ]]; then\n"
             "        compadd -- ");
    print_command_names();
    out_text("\n"
             "        return\n"
             "    fi\n"
             "    case \"$words[2]:$words[CURRENT-1]\" in\n");
    print_choice_cases("words_wanted=");
    out_text("    esac\n"
             "    if [[ -n $words_wanted ]]; then\n"
             "        compadd -- ${=words_wanted}\n"
             "        return\n"
             "    fi\n"
             "    case \"$words[2]\" in\n");
    print_option_cases("words_wanted=");
    out_text("    esac\n"
             "    if [[ $PREFIX == -* ]]; then\n"
             "        compadd -- ${=words_wanted}\n"
             "    elif [[ $words[2] == completion ]]; then\n"
             "        compadd bash zsh fish\n"
             "    else\n"
             "        _files\n"
             "    fi\n"
             "}\n"
             "if [[ $funcstack[1] == _carat ]]; then\n"
             "    _carat \"$@\"\n"
             "else\n"
             "    compdef _carat carat\n"
             "fi\n");
}

/* Single-quoted for fish: backslash and quote are escaped. */
static void print_quoted(const char *text)
{
    out_text("'");
    for (; *text; text++) out_printf(*text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    out_text("'");
}

static void print_fish_option(enum command_id command, enum option_id id)
{
    char spelling[64];
    const struct option_spec *spec = &option_specs[id];
    out_printf("complete -c carat -n '__fish_seen_subcommand_from %s'",
               command_specs[command].name);
    for (int n = 0; option_spelling(id, n, spelling, sizeof spelling); n++) {
        if (spelling[1] == '-')
            out_printf(" -l %s", spelling + 2);
        else
            out_printf(" -%c %s", spelling[2] ? 'o' : 's', spelling + 1);
    }
    if (spec->kind == KIND_CHOICE) {
        out_text(" -x -a '");
        print_words(spec->value);
        out_text("'");
    } else if (spec->kind != KIND_FLAG) {
        out_text(" -r");
    }
    out_text(" -d ");
    print_quoted(spec->help);
    out_text("\n");
}

static void print_fish(void)
{
    out_text("# fish completion for carat\n");
    for (int c = 0; c < COMMAND_COUNT; c++) {
        out_printf("complete -c carat -n __fish_use_subcommand -f -a %s -d ",
                   command_specs[c].name);
        print_quoted(command_specs[c].summary);
        out_text("\n");
    }
    out_text("complete -c carat -n '__fish_seen_subcommand_from help config; "
             "and test (count (commandline -opc)) -eq 2' -f -a '");
    print_command_names();
    out_text("'\n"
             "complete -c carat -n '__fish_seen_subcommand_from completion' -f "
             "-a 'bash zsh fish'\n");
    for (int c = 0; c < COMMAND_COUNT; c++)
        for (int i = 0; i < OPT_COUNT; i++)
            if (option_applies((enum option_id)i, (enum command_id)c))
                print_fish_option((enum command_id)c, (enum option_id)i);
}

int command_completion(const struct options *o)
{
    const char *shell = o->n_arguments == 1 ? o->arguments[0] : "";
    if (strcmp(shell, "bash") == 0) {
        print_bash();
    } else if (strcmp(shell, "zsh") == 0) {
        print_zsh();
    } else if (strcmp(shell, "fish") == 0) {
        print_fish();
    } else {
        struct carat_error err = {0};
        err_set(&err, CARAT_EUSAGE, "completion: one shell is expected: bash, zsh or fish");
        err_hint(&err, "carat completion bash");
        return report(&err);
    }
    return 0;
}
