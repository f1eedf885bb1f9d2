#!/usr/bin/env python3
"""Takes docs/images/page.png: the page of `carat serve demo` after two turns.

usage: tests/page/screenshot.py PROGRAM [FILE]
"""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "e2e"))
from browser import ENTER, Browser
from program import ROOT
from server import Server

TURNS = ["Who are you?", "Tell me a story about a small dog.",
         "Tell me a story about a bird and a king."]
SET = """const field = document.getElementById(arguments[0]); field.value = arguments[1];
         field.dispatchEvent(new Event('input', {bubbles: true}));"""


def main():
    target = sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/images/page.png"
    with Server("demo") as server, Browser(size=(1200, 720)) as browser:
        browser.go(f"http://127.0.0.1:{server.port}/")
        browser.wait("document.querySelector('#model').textContent")
        browser.run(SET, "seed", "7")
        for i, words in enumerate(TURNS):
            browser.find("#input").type(words, ENTER)
            browser.wait("document.querySelector('#stop').hidden && "
                         "document.querySelectorAll('.assistant .stats').length === arguments[0]",
                         max(i, 1))
            if i == 0:
                browser.run("document.querySelector('#new-chat').click()")
        browser.run("document.querySelector('#scroller').scrollTop = 0")
        browser.screenshot(target)


if __name__ == "__main__":
    main()
