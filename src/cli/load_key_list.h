/* LOAD_KEY_LIST: what `carat bench --load KEY=VALUE,...` can say about a group of requests, once.
 *
 * X("key", KIND, member, low, high, "help")
 *
 * KIND is COUNT (whole; k, m or g may follow: 8k is 8192), REAL, NAME, SWITCH, FILE or GOALS.
 * `member` is a member of struct load_group (load_spec.h). The list gives parsing, error messages
 * and help. */
#ifndef CLI_LOAD_KEY_LIST_H
#define CLI_LOAD_KEY_LIST_H

enum { LOAD_REQUESTS_MAX = 65536, LOAD_TURNS_MAX = 1024, LOAD_POSITIONS_MAX = 1048576 };

#define LOAD_KEY_LIST(X)                                                                           \
    X("name", NAME, name, 0, 0, "of the group in the report")                                      \
    X("users", COUNT, users, 1, LOAD_REQUESTS_MAX,                                                 \
      "a closed loop: each of N users sends a request when its last one has ended")                \
    X("rate", REAL, rate, 1e-3, 1e6,                                                               \
      "an open loop: R new chats a second, whatever the engine does; without users or rate all "   \
      "come at once")                                                                              \
    X("burstiness", REAL, burstiness, 1e-2, 1e3,                                                   \
      "of rate: 1 is a Poisson process, less comes in bursts, more is more even (default 1)")      \
    X("requests", COUNT, requests, 1, LOAD_REQUESTS_MAX,                                           \
      "how many, all turns counted (default: 4 chats a user, with rate 64, else 1)")               \
    X("warmup", COUNT, warmup, 0, LOAD_REQUESTS_MAX,                                               \
      "further requests that end before the clock starts (default 0)")                             \
    X("in", COUNT, in, 1, LOAD_POSITIONS_MAX, "tokens of a prompt (default 512)")                  \
    X("in-spread", REAL, in_spread, 0, 1, "0.5: lengths from half of it to one and a half")        \
    X("out", COUNT, out, 1, LOAD_POSITIONS_MAX, "tokens of an answer (default 128)")               \
    X("out-spread", REAL, out_spread, 0, 1, "likewise")                                            \
    X("prefix", COUNT, prefix, 0, LOAD_POSITIONS_MAX,                                              \
      "tokens in front of the first prompt that chats share (default 0)")                          \
    X("prefixes", COUNT, prefixes, 1, LOAD_REQUESTS_MAX,                                           \
      "different ones, which chats take by turns (default 1)")                                     \
    X("turns", COUNT, turns, 1, LOAD_TURNS_MAX,                                                    \
      "of a chat; a later prompt is the last one, its answer and new tokens (default 1)")          \
    X("in-next", COUNT, in_next, 1, LOAD_POSITIONS_MAX, "new tokens of later turns (default in)")  \
    X("think", REAL, think, 0, 3600, "seconds from an answer to the next turn (default 0)")        \
    X("chats", COUNT, chats, 1, LOAD_REQUESTS_MAX,                                                 \
      "a closed loop's open chats, which users take by turns (default: as many as users)")         \
    X("cancel", REAL, cancel, 0, 1,                                                                \
      "share of requests that are cancelled: in the queue, in the prompt or in the answer")        \
    X("deadline", REAL, deadline, 1e-3, 3600, "seconds after which a request is given up")         \
    X("priority", COUNT, priority, 0, 1000, "higher ones first (default 0)")                       \
    X("keys", COUNT, keys, 0, LOAD_REQUESTS_MAX,                                                   \
      "fairness keys, which chats take by turns (default 0: all requests share one)")              \
    X("salts", COUNT, salts, 0, LOAD_REQUESTS_MAX,                                                 \
      "salts of the prefix cache, which chats take by turns (default 0: none)")                    \
    X("cache", SWITCH, uses_cache, 0, 0, "on or off: the prefix cache (default on)")               \
    X("schema", FILE, schema, 0, 0,                                                                \
      "a JSON Schema that answers are held to; they may end before `out`")                         \
    X("temp", REAL, temperature, 0, 100, "temperature (default 0, the likeliest token)")           \
    X("delay", REAL, delay, 0, 3600, "seconds before the group begins (default 0)")                \
    X("ramp", REAL, ramp, 0, 3600,                                                                 \
      "a closed loop: seconds over which its users begin, evenly (default 0: all at once)")        \
    X("after", NAME, after_name, 0, 0,                                                             \
      "a group given before: delay begins when all its users have a first token")                  \
    X("during", NAME, during_name, 0, 0,                                                           \
      "a group: count only gaps between tokens while a request of it is under way")                \
    X("goodput", GOALS, ttft_goal, 0, 0, "ttft:MS,tpot:MS,e2el:MS: which requests are good")

#endif
