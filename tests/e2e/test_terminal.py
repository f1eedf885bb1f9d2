#!/usr/bin/env python3
"""Chat as a person uses it, on a terminal of its own: lines, blocks, keys, signals, history.

usage: tests/e2e/test_terminal.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

What was sent is read from the file that /save writes. Nothing here waits for a time: a test waits
for what the program shows, and gives up after a minute.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import termios

import program
from program import (MODEL, PROGRAM, Skip, Terminal, carat, expect, expect_status, libraries,
                     need_demo, need_json, wait_until)

LEFT, UP, DOWN = "\x1b[D", "\x1b[A", "\x1b[B"
PASTE = "\x1b[200~{}\x1b[201~"


def need_edit():
    if "libedit" not in libraries():
        raise Skip("built without libedit")


class Chat(Terminal):
    def __init__(self, *arguments, **more):
        limit = [] if "-n" in arguments else ["-n", "2"]
        super().__init__("chat", MODEL, "--temp", "0", *limit, *arguments, **more)
        self.begin()

    def begin(self):
        self.wait_for("> ")
        self.command("/stats", "timings are printed")

    def say(self, line):
        """Sends a message and waits for the end of the answer, which the timings show."""
        self.send(line + "\r")
        self.wait_for("t/s)\r\n")
        self.wait_for("> ")

    def command(self, line, wanted):
        self.send(line + "\r")
        self.wait_for(wanted)
        self.wait_for("> ")

    def messages(self):
        """What the user has said so far."""
        path = os.path.join(self.folder.name, "talk.json")
        self.command(f"/save {path}", "messages saved")
        talk = json.loads(pathlib.Path(path).read_text())["messages"]
        return [m["content"] for m in talk if m["role"] == "user"]

    def leave(self):
        self.send("\x04")
        expect(self.status() == 0, "status")

    def modes(self):
        """Whether the terminal gathers whole lines and echoes them, as shells set it."""
        flags = termios.tcgetattr(self.fd)[3]
        return bool(flags & termios.ICANON), bool(flags & termios.ECHO)


def marks_pastes(terminal):
    """Whether the program has told the terminal to mark what is pasted."""
    return terminal.raw.rfind("\x1b[?2004h") > terminal.raw.rfind("\x1b[?2004l")


# ---- What was read before ----------------------------------------------------------------------

def numbers(stats):
    """Tokens of the prompt, and how many of them came from the cache."""
    found = re.search(r"prompt (\d+) tokens(?:, (\d+) of them from the cache)?, first token after",
                      stats)
    expect(found, f"no timings: {stats[-300:]!r}")
    return int(found[1]), int(found[2] or 0)


class LongTalk(Chat):
    """With a system prompt of several pages of 64 positions, at temperature 0."""

    def __init__(self):
        program.Terminal.__init__(self, "chat", need_demo(), "--temp", "0", "-n", "24", "--system",
                                  "You are a friendly dog. " * 20)
        self.begin()

    def ask(self, line):
        """Says it, or gives a command that makes an answer; the numbers of its timings."""
        self.send(line + "\r")
        stats = self.wait_for("t/s)\r\n")
        self.wait_for("> ")
        return numbers(stats)

    def talk(self):
        path = os.path.join(self.folder.name, "talk.json")
        self.command(f"/save {path}", "messages saved")
        return json.loads(pathlib.Path(path).read_text())["messages"]


def cold_answer(talk, folder):
    """What a new process answers to all but the last message."""
    path = os.path.join(folder, "request.json")
    pathlib.Path(path).write_text(json.dumps({"messages": talk[:-1]}))
    done = carat("run", need_demo(), "--request", path, "--temp", "0", "-n", "24", "-q", "--json")
    expect_status(done, 0)
    return json.loads(done.stdout)["text"]


def test_a_turn_reads_only_what_is_new():
    """All but the last page of what two prompts have in common is not read again, also after /regen
    and /undo. The answers are those of a process that has read nothing before."""
    program.need_json()
    chat = LongTalk()
    first, cached = chat.ask("Tell me a story about a bird.")
    expect(first > 128 and cached == 0, f"{first} tokens, {cached} from the cache")
    second, cached = chat.ask("And your dog?")
    expect(second > first and first - 64 - 8 <= cached < second, f"second turn: {cached}")
    talk = chat.talk()
    again, cached = chat.ask("/regen")
    expect(again == second and second - 64 <= cached < second, f"/regen: {cached}")
    expect(chat.talk() == talk, "the same question gets the same answer")
    chat.command("/undo", "forgotten")
    again, cached = chat.ask("And your dog?")
    expect(again == second and cached >= second - 64, f"/undo and the same: {cached}")
    chat.command("/undo", "forgotten")
    other, cached = chat.ask("Or your cat, which is larger?")
    expect(first - 64 - 8 <= cached < other, f"/undo and another: {cached}")
    for one in (talk, chat.talk()):
        expect(one[-1]["content"] == cold_answer(one, chat.folder.name), f"cold: {one[-1]}")
    chat.leave()


# ---- Ctrl-C and Ctrl-D ------------------------------------------------------------------------

def interrupt(chat):
    """Ctrl-C on a line that is not empty. Keys sent right after it might be read before it."""
    before = len(chat.raw)
    chat.send("\x03")
    wait_until(lambda: chat.read(0.05) and len(chat.raw) > before, "the empty line")


def empty_line(chat, typed):
    chat.send(typed)
    chat.wait_for(typed)
    interrupt(chat)


def test_interrupt_empties_a_line_and_nothing_more():
    need_edit()
    chat = Chat()
    for _ in range(3):
        empty_line(chat, "not this")
    chat.say("but this")
    chat.send("one\x1b\r")
    empty_line(chat, "two")
    chat.say("and this")
    expect(chat.messages() == ["but this", "and this"], str(chat.messages()))
    chat.leave()


def test_two_interrupts_on_an_empty_line_leave():
    chat = Chat()
    chat.send("\x03")
    chat.wait_for("Ctrl-D or /exit leaves")
    chat.wait_for("> ")
    chat.say("words between")
    chat.send("\x03")
    chat.wait_for("Ctrl-D or /exit leaves")
    chat.wait_for("> ")
    chat.send("\x03")
    expect(chat.status() == 130, "status")


def test_an_emptied_line_is_no_first_interrupt():
    need_edit()
    chat = Chat()
    empty_line(chat, "words")
    chat.send("\x03")
    chat.wait_for("Ctrl-D or /exit leaves")
    chat.wait_for("> ")
    empty_line(chat, "more words")
    chat.say("still here")
    chat.leave()


def test_end_of_input_ends_a_block():
    for is_piped in (False, True):
        if is_piped:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "talk.json")
                done = carat("chat", MODEL, "--temp", "0", "-n", "2",
                             stdin=f'/save {path}\n"""a\nb'.encode())
                expect_status(done, 0)
                expect(done.stdout, "the block was not answered")
            continue
        chat = Chat()
        chat.send('"""one\r')
        chat.wait_for(". ")
        chat.send("two\r")
        chat.wait_for(". ")
        chat.send("\x04")
        chat.wait_for("t/s)")
        chat.wait_for("> ")
        expect(chat.messages() == ["one\ntwo"], str(chat.messages()))
        chat.leave()


def test_interrupt_drops_a_block():
    chat = Chat()
    chat.send('"""one\r')
    chat.wait_for(". ")
    chat.send("\x03")
    chat.wait_for("the block is dropped")
    chat.wait_for("> ")
    chat.say("two")
    expect(chat.messages() == ["two"], str(chat.messages()))
    chat.leave()


# ---- History ----------------------------------------------------------------------------------

def history_of(folder):
    path = pathlib.Path(folder) / "carat/history"
    return path.read_text().splitlines()[1:] if path.exists() else []


def test_a_closed_window_keeps_what_was_said():
    need_edit()
    chat = Chat()
    chat.say("something to keep")
    chat.send("half a line")
    chat.wait_for("half a line")
    os.close(chat.fd)  # the window is gone: SIGHUP
    wait_until(lambda: os.waitpid(chat.pid, os.WNOHANG)[0], "the end of the chat")
    expect(history_of(chat.folder.name) == ["/stats", "something to keep"],
           str(history_of(chat.folder.name)))
    again = Chat(XDG_STATE_HOME=chat.folder.name)
    again.say(UP + UP)
    expect(again.messages() == ["something to keep"], str(again.messages()))
    again.leave()


def test_a_killed_chat_keeps_what_was_said():
    need_edit()
    chat = Chat()
    chat.say("something to keep")
    os.kill(chat.pid, signal.SIGKILL)
    chat.status()
    expect("something to keep" in history_of(chat.folder.name), "it is lost")


def test_two_chats_at_once_keep_all_lines():
    need_edit()
    one = Chat()
    two = Chat(XDG_STATE_HOME=one.folder.name)
    one.say("one a")
    two.say("two a")
    one.say("one b")
    two.say("two b")
    one.leave()
    two.leave()
    kept = [line for line in history_of(one.folder.name) if line != "/stats"]
    expect(kept == ["one a", "two a", "one b", "two b"], str(kept))


def test_history_that_libedit_wrote_is_kept():
    need_edit()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "carat/history"
        path.parent.mkdir()
        older = "_HiStOrY_V2_\nof\\040old\none\\012two\ncaf\u00e9\\040au\\040lait\n"
        path.write_text(older)
        chat = Chat(XDG_STATE_HOME=folder)
        chat.say(UP + UP)
        chat.say(UP * 5)
        chat.say(UP * 8)  # past this session's messages, and through the lines of the block twice
        wanted = ["caf\u00e9 au lait", "one\ntwo", "of old"]
        expect(chat.messages() == wanted, str(chat.messages()))
        chat.leave()
        expect(path.read_text().startswith(older), "the older lines are not as they were")
        expect(path.stat().st_mode & 0o777 == 0o600, "others can read it")


def test_history_that_cannot_be_written_is_one_note():
    need_edit()
    with tempfile.TemporaryDirectory() as folder:
        blocker = pathlib.Path(folder) / "carat"
        blocker.write_text("not a folder")
        chat = Chat(XDG_STATE_HOME=folder)
        for text in ("one", "two"):
            chat.say(text)
        chat.say(UP + UP)
        expect(chat.raw.count("not kept for the next time") == 1, chat.raw)
        expect(chat.messages() == ["one", "two", "one"], str(chat.messages()))
        chat.leave()
        expect(blocker.read_text() == "not a folder", "it was replaced")


def test_history_on_a_full_disk_loses_nothing():
    need_edit()
    chat = Chat()
    chat.say("kept")
    path = pathlib.Path(chat.folder.name) / "carat/history"
    before = path.read_bytes()
    # For this process the disk is full four bytes from here.
    resource.prlimit(chat.pid, resource.RLIMIT_FSIZE,
                     (len(before) + 4, resource.RLIM_INFINITY))
    chat.say("does not fit")
    chat.say("nor does this")
    expect(chat.raw.count("not kept for the next time") == 1, chat.raw[-500:])
    expect(path.read_bytes() == before, "the file is not as it was")
    resource.prlimit(chat.pid, resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    chat.say("fits again")
    chat.leave()
    expect(path.read_bytes() == before + b"fits again\n", str(path.read_bytes()))


def test_no_history_reads_and_writes_none():
    need_edit()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "carat/history"
        path.parent.mkdir()
        path.write_text("_HiStOrY_V2_\nearlier\n")
        chat = Chat("--no-history", XDG_STATE_HOME=folder)
        chat.say(UP + UP + "\x15now")
        expect("earlier" not in chat.raw and chat.messages() == ["now"], chat.raw)
        chat.leave()
        expect(path.read_text() == "_HiStOrY_V2_\nearlier\n", "it was written")


# ---- Blocks -----------------------------------------------------------------------------------

def test_a_recalled_block_is_sent_whole():
    need_edit()
    chat = Chat()
    chat.say(PASTE.format("one\ntwo\nthree"))
    chat.say(UP)
    chat.say(UP + " and more")
    chat.say('"""first\rsecond"""')
    chat.say(UP)
    block = "one\ntwo\nthree"
    wanted = [block, block, block + " and more", "first\nsecond", "first\nsecond"]
    expect(chat.messages() == wanted, str(chat.messages()))
    chat.leave()


def test_a_recalled_block_can_be_edited_in_every_line():
    need_edit()
    chat = Chat()
    chat.say(PASTE.format("one\ntwo\nthree"))
    chat.say(UP + UP + "A" + UP + "B" + DOWN + "C")
    chat.say("last")
    chat.say(UP + UP + UP + UP + UP)  # the last one, the edited one from its end on, the first
    wanted = ["one\ntwo\nthree", "oneB\ntwoAC\nthree", "last", "one\ntwo\nthree"]
    expect(chat.messages() == wanted, str(chat.messages()))
    chat.leave()


def test_alt_enter_begins_another_line():
    need_edit()
    chat = Chat()
    chat.say("one\x1b\rtwo\x1b\nthree\x1b[13;2ufour\x1b[27;5;13~five")
    expect(chat.messages() == ["one\ntwo\nthree\nfour\nfive"], str(chat.messages()))
    chat.leave()


def test_fifty_pasted_lines_are_one_message():
    need_edit()
    chat = Chat(size=(12, 16))
    block = "\n".join(f"line {i} of the text" for i in range(50))  # wider than the window
    chat.say(PASTE.format(block.replace("\n", "\r")))
    chat.say(PASTE.format(block.replace("\n", "\r\n")))
    chat.say(UP)
    expect(chat.messages() == [block] * 3, str(chat.messages()))
    chat.leave()


def test_a_paste_may_hold_any_bytes():
    need_edit()
    chat = Chat()
    os.write(chat.fd, b"\x1b[200~a\xff\x07b\t\xe2\x90\xa4c \xf0\x9f\x98\x80\x1b[201~")
    chat.say("")
    expect(chat.messages() == ["a?b\t\u2424c \U0001f600"], str(chat.messages()))
    chat.leave()


def test_a_paste_that_is_too_long_is_cut_with_a_note():
    need_edit()
    chat = Chat("-c", "64", size=(24, 1000))
    text = "word " * 250000
    chat.resize(24, 1000)
    sent = 0
    data = PASTE.format(text).encode()
    os.set_blocking(chat.fd, False)
    while sent < len(data):
        try:
            sent += os.write(chat.fd, data[sent:sent + 4096])
        except BlockingIOError:
            chat.read(0.05)
    os.set_blocking(chat.fd, True)
    chat.wait_for("only the first 1048576 bytes")
    chat.say("\x15short")
    expect(chat.messages() == ["short"], str(chat.messages()))
    chat.leave()


def test_a_piped_line_keeps_nul():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk.json")
        done = carat("chat", MODEL, "-n", "2",
                     stdin=b'a\0b\n\0\n"""c\0\nd\0"""\n' + f"/save {path}\n".encode())
        expect_status(done, 0)
        talk = json.loads(pathlib.Path(path).read_text())["messages"]
        sent = [m["content"] for m in talk if m["role"] == "user"]
        expect(sent == ["a\0b", "\0", "c\0\nd\0"], str(sent))


# ---- Keys -------------------------------------------------------------------------------------

def test_a_pipe_learns_that_a_line_failed():
    for line in (b"Tell me a story. " * 400, b"/load /no/such/file", b"/nosuch"):
        done = carat("chat", MODEL, "-c", "64", "--grammar", 'root ::= "yes"',
                     stdin=b"hello\n" + line + b"\nhello\n")
        expect_status(done, 2)
        expect(done.stdout.count(b"yes") == 2, f"the other lines are answered: {done.stdout}")
    chat = Chat()
    chat.command("/nosuch", "no such command")
    chat.leave()


def test_arrows_with_ctrl_or_alt_go_by_words():
    need_edit()
    chat = Chat()
    for name, left, right in (("xterm, tmux", "\x1b[1;5D", "\x1b[1;5C"),
                              ("Alt in xterm", "\x1b[1;3D", "\x1b[1;3C"),
                              ("rxvt", "\x1bOd", "\x1bOc"),
                              ("screen", "\x1b[5D", "\x1b[5C"),
                              ("Linux console, Alt", "\x1b\x1b[D", "\x1b\x1b[C"),
                              ("letters", "\x1bb", "\x1bf")):
        chat.say(f"one two three{left}{left}A{left}{left}B{right}C")
        sent = chat.messages()[-1]
        expect(sent == "BoneC Atwo three", f"{name}: {sent!r}")
    chat.leave()


def test_home_end_and_delete_of_all_terminals():
    need_edit()
    chat = Chat()
    for home, end in (("\x1b[H", "\x1b[F"), ("\x1bOH", "\x1bOF"), ("\x1b[1~", "\x1b[4~"),
                      ("\x1b[7~", "\x1b[8~"), ("\x01", "\x05"), ("\x1b[1;5H", "\x1b[1;5F")):
        chat.say(f"xtwo{home}\x1b[3~one {end} three")
        sent = chat.messages()[-1]
        expect(sent == "one two three", f"{home!r}: {sent!r}")
    chat.leave()


def test_keys_without_a_meaning_leave_nothing():
    need_edit()
    chat = Chat()
    keys = ["\x1b[15~", "\x1b[24~", "\x1b[5~", "\x1b[6;5~", "\x1b[2~", "\x1b[1;5P", "\x1b[1;6C",
            "\x1b[3;2~", "\x1b[1;2D", "\x1b[1;2C"]
    chat.say("a" + "".join(keys) + "b")
    expect(chat.messages() == ["ab"], str(chat.messages()))
    chat.leave()


# ---- Tab and commands -------------------------------------------------------------------------

def test_tab_completes_commands_and_their_words():
    need_edit()
    chat = Chat()
    chat.command("/sy\tBe brief.", "system prompt set")
    chat.command("/se\trepeat-p\t1.25", "repeat-penalty 1.25")
    chat.command("/th\to\tn", "thinking is on")  # on and off have one letter in common
    chat.send("/s\t")
    chat.wait_for("\n")
    listed = chat.wait_for("> /s").split()
    expect(sorted(listed) == ["/save", "/set", "/stats", "/system"], str(listed))
    chat.command("et top-k 7", "top-k 7")
    chat.send("/set re\t\t")
    chat.wait_for("\n")
    listed = chat.wait_for("> /set repeat-").split()
    expect(sorted(listed) == ["repeat-last-n", "repeat-penalty"], str(listed))
    chat.command("last-n 9", "repeat-last-n 9")
    chat.leave()


def test_a_file_stays_for_the_next_message_when_one_does_not_fit():
    chat = Chat("-c", "64")
    path = pathlib.Path(chat.folder.name) / "file.txt"
    path.write_text("in the file")
    chat.command(f"/read {path}", "sent with your next message")
    chat.command("many words " * 60, "exceeds")
    chat.say("what is this")
    chat.say("and this")
    expect(chat.messages() == ["in the file\n\nwhat is this", "and this"], str(chat.messages()))
    chat.leave()


def test_chat_keeps_its_form_when_it_loads():
    need_json()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"messages": [{"role": "user", "content": "hi"},
                                {"role": "assistant", "content": "Hello!"}]}, file)
        file.flush()
        done = carat("chat", MODEL, "-n", "20", "-q", "--grammar", 'root ::= "yes" | "no"',
                     stdin=f"/load {file.name}\nAnother question\n".encode())
    expect_status(done, 0)
    expect(done.stdout.strip() in (b"yes", b"no"), str(done.stdout))


def test_tab_completes_file_names():
    need_edit()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "a folder").mkdir()
        (folder / "a folder/caf\u00e9.txt").write_text("in the file")
        (folder / "a folder/caf\u00ea.txt").write_text("in another")
        (folder / "a folder/.hidden").write_text("hidden")
        (folder / "bell\x07.txt").write_text("not to be shown")
        chat = Chat()
        chat.send(f"/rea\t{folder}/a\t\t\t")
        chat.wait_for("caf\u00e9.txt")
        chat.wait_for("caf\u00ea.txt")
        chat.wait_for("> /read")
        chat.command("\u00e9\t", "11 bytes, sent with your next message")
        chat.send(f"/save {folder}/.h\t{folder}/b\t%")
        chat.wait_for("%")  # not in the folder's name: all keys before it have been read
        expect("\x07.txt" not in chat.raw and ".hidden" not in chat.raw, "shown")
        interrupt(chat)
        chat.say("what is this")
        expect(chat.messages() == ["in the file\n\nwhat is this"], str(chat.messages()))
        chat.leave()


def test_bash_completes_file_names_with_blanks():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "script").write_bytes(carat("completion", "bash").stdout)
        (pathlib.Path(folder) / "my model.gguf").touch()
        bash = Terminal("--norc", "--noprofile", program="bash", PS1="ready> ")
        bash.send(f"cd {folder}; . ./script; echo is $((6 * 7))\n")
        bash.wait_for("is 42")
        bash.send("carat run my\t")
        bash.wait_for("my\\ model.gguf ", seconds=5)
        bash.send("\x15exit\n")
        expect(bash.status() == 0, "bash")


def test_fish_completes_commands_options_and_words():
    if not shutil.which("fish"):
        raise Skip("fish is not installed")
    script = carat("completion", "fish").stdout.decode()
    for line, wanted in (("carat to", "tokenize"), ("carat run m --te", "--temp"),
                         ("carat run m --think o", "off"), ("carat help de", "detokenize"),
                         ("carat config se", "serve"), ("carat completion z", "zsh")):
        done = subprocess.run(["fish", "-c", f"{script}\ncomplete -C '{line}'"],
                              capture_output=True, text=True)
        words = [row.split("\t")[0] for row in done.stdout.splitlines()]
        expect(wanted in words, f"{line}: {words} {done.stderr!r}")


def test_tab_in_a_message_is_a_tab():
    need_edit()
    chat = Chat()
    chat.say("if x:\x1b\r\tgo")
    expect(chat.messages() == ["if x:\n\tgo"], str(chat.messages()))
    chat.leave()


def test_help_has_a_short_name_and_names_all_settings():
    chat = Chat()
    chat.send("/?\r")
    shown = chat.wait_for("mirostat-lr samplers stop")
    expect("/regen" in shown and "repeat-last-n" in shown and "Alt-Enter" in shown, shown)
    chat.wait_for("> ")
    chat.leave()


def test_penalties_and_stop_strings_can_be_set():
    chat = Chat("--stop", "from the command line")
    chat.command("/set", 'stop "from the command line"')
    for name, value in (("repeat-penalty", "1.5"), ("repeat-last-n", "-1"),
                        ("presence-penalty", "0.5"), ("frequency-penalty", "-0.5"),
                        ("temp", "0"), ("seed", "3"), ("max-tokens", "20"),
                        ("dry-multiplier", "0.5"), ("dry-penalty-last-n", "64"),
                        ("xtc-probability", "0.25"), ("mirostat", "2"),
                        ("samplers", "top_k;top_p;temperature"), ("samplers", "none")):
        chat.command(f"/set {name} {value}", f"{name} {value}")
    chat.command("/set presence-penalty 3", "-2 to 2")
    chat.command("/set mirostat 1", "0|2")
    chat.command("/set samplers top_k;tfs_z", 'no sampler is called "tfs_z"')
    order = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
    chat.command(f"/set samplers {order}", f"samplers {order}")
    chat.command("/set dry-multiplier 0", "dry-multiplier 0")
    chat.command("/set ctx-size 64", "there is no ctx-size to set")
    chat.command("/set temp", "one value is expected")
    chat.command("/set stop", "stop none")
    for name in ("repeat-penalty", "presence-penalty", "frequency-penalty"):
        chat.command(f"/set {name} {1 if name[0] == 'r' else 0}", name)
    chat.say("hello")
    chat.command("/save " + os.path.join(chat.folder.name, "whole"), "saved")
    talk = json.loads((pathlib.Path(chat.folder.name) / "whole").read_text())["messages"]
    whole = talk[-1]["content"]
    stop = next(c for c in whole if c.isalpha())
    chat.command(f"/set stop {stop}", 'stop "')
    chat.command("/set stop two words", ', "two words"')
    chat.command("/regen", "t/s)")  # another seed, but temperature 0
    chat.command("/save " + os.path.join(chat.folder.name, "cut"), "saved")
    talk = json.loads((pathlib.Path(chat.folder.name) / "cut").read_text())["messages"]
    expect(talk[-1]["content"] == whole[:whole.index(stop)], f"{talk[-1]['content']!r}")
    chat.leave()


def test_a_penalty_that_is_set_changes_the_answer():
    chat = Chat("-n", "20")
    chat.say("hello")
    chat.command("/set repeat-penalty 50", "repeat-penalty 50")
    chat.command("/regen", "t/s)")
    path = os.path.join(chat.folder.name, "talk")
    chat.command(f"/save {path}", "saved")
    with_penalty = json.loads(pathlib.Path(path).read_text())["messages"][-1]["content"]
    chat.command("/set repeat-penalty 1", "repeat-penalty 1")
    chat.command("/regen", "t/s)")
    chat.command(f"/save {path}", "saved")
    without = json.loads(pathlib.Path(path).read_text())["messages"][-1]["content"]
    expect(with_penalty != without, with_penalty)
    chat.leave()


def test_a_full_context_names_the_ways_out():
    chat = Chat("-c", "64", "-n", "-1")
    chat.send("word " * 60 + "\r")
    chat.wait_for("exceeds the available context size")
    chat.wait_for("/undo")
    chat.wait_for("/clear")
    chat.wait_for("> ")
    chat.leave()


# ---- The window -------------------------------------------------------------------------------

def test_a_resized_window_is_drawn_anew():
    need_edit()
    chat = Chat()
    text = "some words that fit into a wide window only"
    chat.send(text)
    chat.wait_for(text)
    chat.resize(24, 30)
    chat.wait_for("> " + text[:20])
    chat.resize(24, 100)
    chat.wait_for("> " + text)
    chat.say("!")
    expect(chat.messages() == [text + "!"], str(chat.messages()))
    chat.leave()


def test_a_resize_while_pasting_loses_nothing():
    need_edit()
    chat = Chat()
    chat.send("\x1b[200~one\rtwo")
    for columns in (40, 60, 80):
        chat.resize(24, columns)
    chat.send("\rthree\x1b[201~")
    chat.say("")
    expect(chat.messages() == ["one\ntwo\nthree"], str(chat.messages()))
    chat.leave()


# ---- Ctrl-Z -----------------------------------------------------------------------------------

class Shell(Chat):
    """A shell with job control, and the chat started in it."""

    def __init__(self, *arguments):
        Terminal.__init__(self, "--norc", "--noprofile", "--noediting", "-i", program="bash",
                          PS1="shell$ ")
        self.wait_for("shell$ ")
        words = " ".join([PROGRAM, "chat", MODEL, "--temp", "0", *arguments])
        self.send(words + "\n")
        self.wait_for("\r\n")
        self.begin()

    def stop(self, how="\x1a"):
        self.send(how)
        self.wait_for("Stopped")
        self.wait_for("shell$ ")

    def foreground(self):
        self.send("fg\n")
        self.wait_for("fg\r\n")

    def leave(self):
        self.send("\x04")
        self.wait_for("shell$ ")
        self.send("exit\n")
        expect(self.status() == 0, "status")


def test_stopped_at_the_prompt_the_shell_has_its_terminal():
    shell = Shell("-n", "2")
    shell.send("half a ")
    shell.wait_for("half a ")
    shell.stop()
    expect(shell.modes() == (True, True), f"modes {shell.modes()}")
    expect(not marks_pastes(shell), "pastes are still marked")
    shell.send("echo in the sh''ell\n")
    shell.wait_for("in the shell")
    shell.foreground()
    if "libedit" in libraries():
        shell.wait_for("> half a ")
        expect(marks_pastes(shell), "pastes are not marked")
        wait_until(lambda: shell.modes() == (False, False), "the line editor's modes")
        shell.say("line")
        expect(shell.messages() == ["half a line"], str(shell.messages()))
    else:
        shell.wait_for("> ")  # the system's line editing has dropped what was typed
        shell.say("line")
        expect(shell.messages() == ["line"], str(shell.messages()))
    shell.leave()


def test_stopped_by_another_program_it_comes_back_too():
    need_edit()
    shell = Shell("-n", "2")
    shell.send("half a ")
    shell.wait_for("half a ")
    # The chat leads the process group that has the terminal.
    os.kill(os.tcgetpgrp(shell.fd), signal.SIGSTOP)
    shell.wait_for("Stopped")
    shell.wait_for("shell$ ")
    shell.foreground()
    shell.wait_for("> half a ")
    wait_until(lambda: shell.modes() == (False, False), "the line editor's modes")
    shell.say("line")
    expect(shell.messages() == ["half a line"], str(shell.messages()))
    shell.leave()


def test_stopped_while_it_answers_it_goes_on():
    shell = Shell("--logit-bias", "106=-inf", "--logit-bias", "1=-inf", "--logit-bias",
                  "50=-inf", "-n", "100000", "-c", "0")
    shell.send("hello\r")
    shell.wait_for("hello")
    before = len(shell.raw)
    wait_until(lambda: shell.read(0.05) and len(shell.raw) > before + 300, "the answer")
    shell.stop()
    expect(shell.modes() == (True, True), f"modes {shell.modes()}")
    expect(not marks_pastes(shell), "pastes are marked")
    shell.foreground()
    before = len(shell.raw)
    wait_until(lambda: shell.read(0.05) and len(shell.raw) > before + 300, "the rest of the answer")
    shell.send("\x03")
    shell.wait_for("stopped")
    shell.wait_for("> ")
    shell.command("/stats", "timings are not printed")
    shell.leave()


def has_ended(process):
    """A shell that waits for a line may leave its ended child as a zombie until then."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_stopped_chat_can_be_terminated():
    shell = Shell("-n", "2")
    process = os.tcgetpgrp(shell.fd)
    shell.stop()
    shell.send("kill %1\n")
    wait_until(lambda: has_ended(process), "the end of the chat")
    expect(shell.modes() == (True, True), f"modes {shell.modes()}")
    shell.send("exit\nexit\n")  # once more, as it may still believe that the job is stopped
    shell.status()


# ---- What is shown ----------------------------------------------------------------------------

def story():
    return ["run", need_demo(), "Tell me a story about a small dog.", "--seed", "7", "-n", "80",
            "-q"]


def story_on_a_terminal(*options, **more):
    terminal = Terminal(*story(), *options, size=(24, 30), CI="1", **more)
    expect(terminal.status() == 0, "status")
    return terminal.raw.replace("\r\n", "\n")


def test_words_of_an_answer_are_not_broken_at_the_edge():
    exact = carat(*story()).stdout.decode()
    expect(max(map(len, exact.splitlines())) > 60, "the story has no long lines")
    shown = story_on_a_terminal()
    expect(max(map(len, shown.splitlines())) <= 30, shown)
    expect(shown.split() == exact.split(), f"{shown!r} of {exact!r}")
    expect(min(map(len, shown.splitlines()[:-1])) > 15, f"broken where it need not be: {shown!r}")


def test_an_answer_is_exact_in_a_file_without_wrapping_and_on_dumb_terminals():
    exact = carat(*story()).stdout.decode()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "story")
        story_on_a_terminal("-o", path)
        expect(pathlib.Path(path).read_text() == exact, "-o")
    expect(story_on_a_terminal("--no-wrap") == exact, "--no-wrap")
    expect(story_on_a_terminal(TERM="dumb") == exact, "TERM=dumb")
    text = json.loads(story_on_a_terminal("--json"))["text"]
    expect(text.rstrip("\n") == exact.rstrip("\n"), "--json")


def test_an_answer_is_wrapped_for_the_window_as_it_is_then():
    chat = Terminal("chat", need_demo(), "--temp", "0", size=(24, 100), CI="1")
    chat.wait_for("> ")
    shown = {}
    for columns in (100, 30, 60):
        chat.resize(24, columns)
        chat.send("Tell me a story about a small dog.\r")
        chat.wait_for("dog.\r\n")
        lines = chat.wait_for("\n> ").replace("\r", "").splitlines()
        shown[columns] = lines
        expect(max(map(len, lines)) <= columns, str(lines))
        expect(max(map(len, lines)) > columns - 15, f"{columns}: {lines}")
        chat.send("/clear\r")
        chat.wait_for("a new conversation")
        chat.wait_for("> ")
    expect(" ".join(shown[30]).split() == " ".join(shown[100]).split(), str(shown))
    chat.send("\x04")
    expect(chat.status() == 0, "status")


def ids_of(text):
    done = carat("tokenize", MODEL, "--json", "--plain", stdin=text.encode())
    return [str(i) for i in json.loads(done.stdout)["ids"]]


def test_a_terminal_shows_marks_of_ordinary_text():
    text = "a\u200eb \u200f\u05d0 \u200c\u200d \U0001f468\u200d\U0001f469 \u202e\u2066 \x1b\x9b"
    terminal = Terminal("detokenize", MODEL, *ids_of(text), CI="1")
    expect(terminal.status() == 0, "status")
    wanted = text.replace("\u202e\u2066", "\\u202e\\u2066").replace("\x1b\x9b", "\\x1b\\x9b")
    expect(wanted in terminal.raw, repr(terminal.raw))


def test_json_on_a_terminal_is_the_same_and_harmless():
    text = "\x9b31m \x85 \u202etxt.exe\u202c \u2066 \u200f \x1b[31m \x7f"
    terminal = Terminal("detokenize", MODEL, "--json", *ids_of(text), CI="1")
    expect(terminal.status() == 0, "status")
    expect(json.loads(terminal.raw)["text"] == text, repr(terminal.raw))
    shown = terminal.raw.replace("\r\n", "")
    expect(shown.isprintable() or "\u200f" in shown and shown.replace("\u200f", "").isprintable(),
           repr(shown))


# ---- Ends -------------------------------------------------------------------------------------

def test_a_signal_puts_the_terminal_back():
    for number, status in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        chat = Chat()
        chat.send("words")
        chat.wait_for("words")
        os.kill(chat.pid, number)
        expect(chat.status() == status, f"{number}: status")
        expect(not marks_pastes(chat), f"{number}: pastes are still marked")


if __name__ == "__main__":
    program.main(globals())
