"""`carat serve` with several engines: answers of one, conversations that stay where they were."""
import threading

import program
from program import carat, expect, expect_error, need_demo
from server import Server, need_server


def greedy(server, prompt, n=12):
    request = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}
    status, _, body = server.ask("POST", "/v1/completions", request)
    expect(status == 200, str(body))
    return body


def together(calls):
    """The results of calls that run side by side."""
    results = [None] * len(calls)

    def call(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_answers_of_three_engines_are_those_of_one():
    prompts = [[2] + [300 + (7 * i + k * k) % 900 for k in range(20 + 5 * i)] for i in range(12)]
    with Server("demo", "--parallel", "4") as one:
        expected = [greedy(one, p)["choices"][0]["text"] for p in prompts]
    with Server("demo", "--replicas", "3", "--parallel", "2") as three:
        expect(three.metric("carat_engines") == 3, "engines")
        expect(three.ask("GET", "/props")[2]["total_slots"] == 6, "sequences of all")
        found = together([lambda p=p: greedy(three, p)["choices"][0]["text"] for p in prompts])
    expect(found == expected, f"{found} instead of {expected}")


def test_a_conversation_stays_on_its_engine():
    """Its second turn finds nearly all of the first one, whoever asks meanwhile."""
    need_server()
    prompts = [[2] + [300 + (11 * i + k) % 900 for k in range(400)] for i in range(6)]
    with Server("demo", "--replicas", "3", "--parallel", "2") as server:
        together([lambda p=p: greedy(server, p) for p in prompts])
        for prompt in prompts:
            usage = greedy(server, prompt + [500] * 20)["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            expect(cached >= 384, f"{cached} of 400 cached")


def test_wrong_engines_are_refused_by_name():
    model = need_demo()
    need_server()
    for words, *said in ((["--gpus", "x"], "--gpus", "x found"),
                         (["--gpus", "0,"], "--gpus", "0, found"),
                         (["--gpus", "99"], "--gpus", "99 found"),
                         (["--gpus", "0,0"], "--gpus", "GPU 0", "twice"),
                         (["--gpus", "0,1", "--device", "1"], "--device", "--gpus"),
                         (["--gpus", "0", "--replicas", "2"], "--replicas", "--gpus"),
                         (["--gpus", "0", "--backend", "cpu"], "--gpus", "cpu", "--replicas"),
                         (["--replicas", "17"], "--replicas", "16")):
        expect_error(carat("serve", model, "--port", "0", *words), 2, *said)


if __name__ == "__main__":
    program.main(globals())
