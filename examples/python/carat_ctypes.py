#!/usr/bin/env python3
"""carat from Python, with the standard library alone.

usage: carat_ctypes.py MODEL.gguf PROMPT

The library is found by the linker, or named by CARAT_LIBRARY. Structs are as in carat.h; of one
that begins with `size` only the members that are needed have to be written down.
"""
import ctypes
import json
import os
import sys
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32
from ctypes import c_size_t, c_uint64, c_void_p

CANCELLED, ERROR = 2, 3          # enum carat_finish
TOKEN, DONE = 1, 2               # enum carat_event_kind
KINDS = ("text", "thinking", "tool_call")


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("message", c_char * 512), ("hint", c_char * 256)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("n_ctx", c_int32)]


class AnswerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("stops", POINTER(c_char_p)), ("n_stops", c_size_t)]


class Sampling(ctypes.Structure):
    _fields_ = [("temperature", c_float), ("top_k", c_int32), ("top_p", c_float),
                ("min_p", c_float), ("repeat_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("repeat_last_n", c_int32), ("seed", c_uint64),
                ("typical_p", c_float), ("top_n_sigma", c_float), ("xtc_probability", c_float),
                ("xtc_threshold", c_float), ("dynatemp_range", c_float),
                ("dynatemp_exponent", c_float), ("dry_multiplier", c_float), ("dry_base", c_float),
                ("dry_allowed_length", c_int32), ("dry_penalty_last_n", c_int32),
                ("dry_breakers", POINTER(c_char_p)), ("n_dry_breakers", c_size_t),
                ("mirostat", c_int32), ("mirostat_tau", c_float), ("mirostat_eta", c_float),
                ("samplers", c_char * 16)]


class Request(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("prompt", POINTER(c_int32)), ("n_prompt", c_size_t),
                ("max_tokens", c_int32), ("sampling", Sampling), ("bias", c_void_p),
                ("n_bias", c_size_t), ("ignore_stop", c_bool), ("want_logprob", c_bool),
                ("n_top_logprobs", c_int32)]


class Logprob(ctypes.Structure):
    _fields_ = [("id", c_int32), ("logprob", c_float)]


class Event(ctypes.Structure):
    _fields_ = [("request", c_uint64), ("kind", c_int), ("done", c_int32), ("total", c_int32),
                ("id", c_int32), ("logprob", c_float), ("finish", c_int), ("stop_id", c_int32),
                ("message", c_char_p), ("n_prompt", c_int32), ("n_generated", c_int32),
                ("prefill_seconds", c_double), ("decode_seconds", c_double),
                ("top", POINTER(Logprob)), ("n_top", c_int32)]


class Part(ctypes.Structure):
    _fields_ = [("kind", c_int), ("text", c_void_p), ("length", c_size_t), ("name", c_char_p),
                ("is_complete", c_bool)]


class Engine:
    """A model and an engine on it, for one thread; `cancel` is for all."""

    def __init__(self, path, n_ctx=0, backend=None):
        self.lib = ctypes.CDLL(os.environ.get("CARAT_LIBRARY", "libcarat.so.0"))
        self.lib.carat_next_event.restype = POINTER(Event)
        self.lib.carat_answer_stop.restype = c_char_p
        self.model, self.engine, self.request = c_void_p(), c_void_p(), c_uint64()
        self.logprobs = []  # of the last answer: (id, logprob, [(id, logprob), ...])
        self.finish = None
        self.call("carat_model_open", byref(self.model), os.fsencode(path))
        options = EngineOptions(ctypes.sizeof(EngineOptions), backend, n_ctx)
        self.call("carat_engine_open", byref(self.engine), self.model, byref(options))

    def close(self):
        self.lib.carat_engine_close(self.engine)
        self.lib.carat_model_close(self.model)
        self.engine, self.model = c_void_p(), c_void_p()

    def call(self, name, *arguments):
        """Calls a function whose last parameter is an error; a negative status raises."""
        err = Error()
        status = getattr(self.lib, name)(*arguments, byref(err))
        if status < 0:
            raise RuntimeError(err.message.decode())
        return status

    def cancel(self):
        """From any thread: ends the current answer. Returns whether there was one."""
        request = c_uint64(self.request.value)
        return bool(self.engine) and self.lib.carat_cancel(self.engine, request) == 0

    def answer(self, messages, stop=(), max_tokens=0, n_top=0, temperature=0.0, seed=0, **more):
        """Yields (kind, text); of a tool call the text is its arguments in JSON."""
        ids, n_ids, answer = POINTER(c_int32)(), c_size_t(), c_void_p()
        text = json.dumps({"messages": messages, **more}).encode()
        self.call("carat_chat_tokenize_json", self.model, text, c_size_t(len(text)), byref(ids),
                  byref(n_ids))
        stops = (c_char_p * len(stop))(*(s.encode() for s in stop))
        options = AnswerOptions(ctypes.sizeof(AnswerOptions), stops, len(stop))
        request = Request(ctypes.sizeof(Request), ids, n_ids, max_tokens,
                          Sampling(temperature=temperature, seed=seed), n_top_logprobs=n_top)
        self.logprobs, self.finish = [], None
        try:
            self.call("carat_answer_open", byref(answer), self.model, ids, n_ids, byref(options))
            self.call("carat_submit", self.engine, byref(request), byref(self.request))
            yield from self.parts_until_done(answer)
        finally:
            if self.finish is None:  # left before its end
                self.cancel()
            self.lib.carat_answer_close(answer)
            self.lib.carat_free(ids)

    def parts_until_done(self, answer):
        while self.finish is None:
            self.call("carat_step", self.engine)
            while event := self.lib.carat_next_event(self.engine):
                event = event.contents
                if event.request != self.request.value:  # an earlier one, which was left
                    continue
                if event.kind == TOKEN:
                    top = [(t.id, t.logprob) for t in event.top[:event.n_top]]
                    self.logprobs.append((event.id, event.logprob, top))
                    one = (c_int32 * 1)(event.id)
                    yield from self.parts("carat_answer_push", answer, one, c_size_t(1))
                elif event.kind == DONE:
                    self.finish = event.finish
                    if event.finish == ERROR:
                        raise RuntimeError(event.message.decode())
            if self.lib.carat_answer_stop(answer):
                self.cancel()
        yield from self.parts("carat_answer_finish", answer)

    def parts(self, name, *arguments):
        parts, n = POINTER(Part)(), c_size_t()
        self.call(name, *arguments, byref(parts), byref(n))
        return [(KINDS[p.kind], ctypes.string_at(p.text, p.length).decode())
                for p in parts[:n.value]]


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    engine = Engine(sys.argv[1])
    for kind, text in engine.answer([{"role": "user", "content": sys.argv[2]}]):
        if kind == "text":
            print(text, end="", flush=True)
    print()
    engine.close()


if __name__ == "__main__":
    main()
