// The page of `carat serve`: chats with the model, kept in this browser. No libraries, no build.
//
// In this order: small tools, Markdown, the server, kept chats, settings, messages on the screen,
// answering, the list of chats, the frame around it. Text from the model or from files only ever
// becomes text nodes; nothing here makes markup of a string.

// ---- Small tools ------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);

// An element with its properties and children. Names that begin with "on" are events.
function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name in element) element[name] = value;
        else element.setAttribute(name, value);
    }
    for (const child of children) element.append(child);
    return element;
}

const button = (text, onclick, className = "quiet") =>
    make("button", { type: "button", className, onclick }, text);

// Where a browser keeps nothing, it throws; then things are kept until the page is closed.
function storageOf(name) {
    try {
        return window[name];
    } catch {
        const values = new Map();
        return { getItem: (key) => values.get(key) ?? null, setItem: (key, text) =>
            values.set(key, text) };
    }
}

const forEver = storageOf("localStorage");
const forTab = storageOf("sessionStorage");

const count = (n) => n.toLocaleString("en");

// Without HTTPS a browser offers no clipboard, but still copies what is selected.
async function copy(text, pressed) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const field = make("textarea", { value: text, className: "unseen" });
        document.body.append(field);
        field.select();
        document.execCommand("copy");
        field.remove();
        pressed.focus();
    }
    pressed.textContent = "Copied";
    setTimeout(() => { pressed.textContent = "Copy"; }, 1500);
}

const copyButton = (text) => button("Copy", (event) => copy(text(), event.target));

// Says something below the conversation for a while, perhaps with something to do about it.
function notify(text, action, onclick) {
    clearTimeout(notify.timer);
    const dismiss = () => $("notice").replaceChildren();
    $("notice").replaceChildren(make("span", {}, text));
    if (action) $("notice").append(button(action, () => { dismiss(); onclick(); }));
    notify.timer = setTimeout(dismiss, 8000);
}

// ---- Markdown: the part of it that models write -----------------------------------------------

const DEPTH_MAX = 8; // of lists, quotes and emphasis inside each other

const EMPHASIS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };
const MARKS = /`+|\*{1,3}|_{1,3}|~~|!?\[|https?:\/\/|\\[!-/:-@[-`{-~]|\n/g;
const LINK = new RegExp([
    /!?\[((?:[^[\]\\\n]|\\.){0,500})\]/,     // [text] or ![text]
    /\( {0,4}((?:[^\s<>()]|\([^\s<>()]*\))*)/, // (address
    /(?: {1,4}"[^"\n]{0,300}")? {0,4}\)/,      // "title")
].map((part) => part.source).join(""), "y");
const ADDRESS = /https?:\/\/[^\s<>"`]*[^\s<>"`.,;:!?')\]*_~]/y;

const isLetter = (c) => /[\p{L}\p{N}]/u.test(c);

// A link, or its text where the address is anything but http or https.
function link(address, children) {
    const url = URL.canParse(address) ? new URL(address) : {};
    if (url.protocol !== "http:" && url.protocol !== "https:")
        return make("span", {}, ...children);
    const properties = { href: url.href, target: "_blank", rel: "noopener noreferrer" };
    return make("a", properties, ...children);
}

// The end of a code span: the next run of exactly these ticks, or -1.
function findTicks(text, ticks, from) {
    for (let at = from; (at = text.indexOf(ticks, at)) >= 0;) {
        let end = at + ticks.length;
        if (text[end] !== "`") return at;
        while (text[end] === "`") end++;
        at = end;
    }
    return -1;
}

// Emphasis while it is read: what it may close is a mark further left in `nodes`.
class Emphasis {
    constructor(nodes) {
        this.nodes = nodes;
        this.open = []; // {mark, at}: at is the place of the mark's own text in nodes
    }

    close(mark) {
        const i = this.open.findLastIndex((one) => one.mark === mark);
        if (i < 0 || this.open[i].at === this.nodes.length - 1) return false;
        const inside = this.nodes.splice(this.open[i].at).slice(1);
        this.open.length = i;
        this.nodes.push(make(EMPHASIS[mark], {}, ...inside.slice(0, 1000)));
        for (const node of inside.slice(1000)) this.nodes.at(-1).append(node);
        return true;
    }

    begin(mark) {
        if (this.open.length < DEPTH_MAX) this.open.push({ mark, at: this.nodes.length });
        this.nodes.push(mark);
    }

    // A run of marks between two characters.
    take(run, before, after) {
        let canBegin = !/\s/.test(after);
        let canClose = !/\s/.test(before);
        if (run[0] === "_") {
            canBegin &&= !isLetter(before);
            canClose &&= !isLetter(after);
        }
        const two = run.slice(0, 2);
        const marks = run.length < 3 ? [run] : canClose && this.open.at(-1)?.mark !== two
            ? [run[0], two] : [two, run[0]];
        for (const mark of marks) {
            if (canClose && this.close(mark)) continue;
            if (canBegin) this.begin(mark);
            else this.nodes.push(mark);
        }
    }
}

// The inside of a block: nodes and texts, to be appended in their order.
function inline(text, isInLink = false) {
    const nodes = [];
    const emphasis = new Emphasis(nodes);
    const marks = new RegExp(MARKS);
    let done = 0; // all before it is in nodes
    const takeNode = (begin, end, node) => {
        if (begin > done) nodes.push(text.slice(done, begin));
        if (node) nodes.push(node);
        done = marks.lastIndex = end;
    };
    for (let match; (match = marks.exec(text));) {
        const [mark] = match;
        const begin = match.index;
        const end = begin + mark.length;
        if (mark[0] === "`") {
            const close = findTicks(text, mark, end);
            if (close < 0) continue;
            const code = text.slice(end, close).replace(/^ (.*\S.*) $/s, "$1");
            takeNode(begin, close + mark.length, make("code", {}, code));
        } else if (mark === "\n") {
            takeNode(begin, end, make("br"));
        } else if (mark[0] === "\\") {
            takeNode(begin, end, mark[1]);
        } else if (mark in EMPHASIS || mark === "***" || mark === "___") {
            takeNode(begin, end);
            emphasis.take(mark, text[begin - 1] ?? " ", text[end] ?? " ");
        } else if (!isInLink) {
            const form = mark.endsWith("[") ? LINK : ADDRESS;
            form.lastIndex = begin;
            const found = form.exec(text);
            if (!found) continue;
            const children = form === LINK ? inline(found[1], true) : [found[0]];
            takeNode(begin, form.lastIndex, link(found[2] ?? found[0], children));
        }
    }
    takeNode(text.length, text.length);
    return nodes;
}

function withInline(tag, text, properties) {
    const element = make(tag, properties);
    for (const node of inline(text)) element.append(node);
    return element;
}

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^ {0,3}([-*+]|\d{1,9}[.)])(?: (.*)|)$/;
const QUOTE = /^ {0,3}>/;

const isBlank = (line) => line.trim() === "";
const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/)
    .map((cell) => cell.trim());

function isTable(lines, at) {
    const rule = lines[at + 1];
    return lines[at].includes("|") && rule !== undefined && rule.includes("-") &&
        /^[\s|:-]+$/.test(rule) && cellsOf(rule).length === cellsOf(lines[at]).length;
}

// Whether a paragraph ends before this line.
const isBegin = (lines, at) => FENCE.test(lines[at]) || HEADING.test(lines[at]) ||
    RULE.test(lines[at]) || QUOTE.test(lines[at]) || isTable(lines, at) ||
    /^ {0,3}([-*+]|1[.)]) /.test(lines[at]);

function codeBlock(language, text) {
    const source = make("code", {}, text);
    const head = make("figcaption", {}, make("span", {}, language || "text"),
                      copyButton(() => source.textContent));
    return make("figure", { className: "listing" }, head, make("pre", {}, source));
}

function readFence(lines, at) {
    const [, fence, language] = FENCE.exec(lines[at]);
    const isEnd = (line) => line.trim().startsWith(fence) && /^ *(`+|~+) *$/.test(line);
    let end = at + 1;
    while (end < lines.length && !isEnd(lines[end])) end++;
    const code = lines.slice(at + 1, end).join("\n");
    return { end: end + 1, code, node: () => codeBlock(language.trim(), code) };
}

function readQuote(lines, at, depth) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    const inside = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
    return { end, node: () => withBlocks("blockquote", inside, depth + 1) };
}

// One item is a block: so a long list is drawn item by item.
function readItem(lines, at, depth) {
    const [, mark, first = ""] = ITEM.exec(lines[at]);
    const margin = new RegExp(`^ {0,${mark.length + 1}}`);
    const inside = [first];
    let end = at + 1;
    for (let i = at + 1; i < lines.length; i++) {
        const isLazy = !isBlank(lines[i - 1]) && !isBegin(lines, i) && !ITEM.test(lines[i]);
        if (isBlank(lines[i])) continue;
        if (!/^( {2}|\t)/.test(lines[i]) && !isLazy) break;
        while (end <= i) inside.push(lines[end++].replace(/^\t/, "    ").replace(margin, ""));
    }
    const list = /\d/.test(mark) ? "ol" : "ul";
    const start = Number.parseInt(mark, 10);
    return { end, list, start, node: () => withBlocks("li", inside, depth + 1) };
}

function readTable(lines, at) {
    const sides = cellsOf(lines[at + 1]).map((rule) =>
        rule.endsWith(":") ? (rule.startsWith(":") ? "center" : "right") : "");
    const row = (tag, line) => make("tr", {}, ...cellsOf(line).slice(0, sides.length).map(
        (cell, i) => withInline(tag, cell.replaceAll("\\|", "|"), { className: sides[i] })));
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|")) end++;
    const node = () => {
        const body = make("tbody");
        for (const line of lines.slice(at + 2, end)) body.append(row("td", line));
        const table = make("table", {}, make("thead", {}, row("th", lines[at])), body);
        return make("div", { className: "table" }, table);
    };
    return { end, node };
}

function readParagraph(lines, at) {
    let end = at + 1;
    while (end < lines.length && !isBlank(lines[end]) && !isBegin(lines, end)) end++;
    const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
    return { end, node: () => withInline("p", text) };
}

// The block that begins at a line that is not blank: {end, node()}, where end is the line after it.
function readBlock(lines, at, depth) {
    const line = lines[at];
    if (FENCE.test(line)) return readFence(lines, at);
    const heading = HEADING.exec(line);
    if (heading) {
        const tag = `h${Math.min(heading[1].length + 1, 4)}`;
        return { end: at + 1, node: () => withInline(tag, heading[2].replace(/ #+ *$/, "")) };
    }
    if (RULE.test(line)) return { end: at + 1, node: () => make("hr") };
    if (depth < DEPTH_MAX && QUOTE.test(line)) return readQuote(lines, at, depth);
    if (depth < DEPTH_MAX && ITEM.test(line)) return readItem(lines, at, depth);
    if (isTable(lines, at)) return readTable(lines, at);
    return readParagraph(lines, at);
}

function readBlocks(lines, depth) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        if (isBlank(lines[at])) {
            at++;
            continue;
        }
        const block = readBlock(lines, at, depth);
        blocks.push({ ...block, begin: at });
        at = block.end;
    }
    return blocks;
}

// Appends a block. Items that follow each other share a list. Returns the block's own element.
function place(parent, block) {
    const node = block.node();
    const last = parent.lastElementChild;
    if (!block.list) parent.append(node);
    else if (last?.localName === block.list) last.append(node);
    else parent.append(make(block.list, block.list === "ol" ? { start: block.start } : {}, node));
    return node;
}

function withBlocks(tag, lines, depth) {
    const element = make(tag);
    for (const block of readBlocks(lines, depth)) place(element, block);
    return element;
}

// Text that grows. Blocks that can no longer change stay as they are; only the last is drawn anew.
export class Markdown { // tests import it
    constructor(host) {
        this.host = host;
        this.tail = "";   // source of what may still change
        this.open = [];   // its elements
        this.code = null; // the text node of a code block that is all of the tail
    }

    append(text, isOver = false) {
        this.tail += text;
        const lines = this.tail.split("\n");
        const blocks = readBlocks(lines, 0);
        if (this.code && blocks.length === 1) {
            this.code.data = blocks[0].code;
            return;
        }
        for (const element of this.open) {
            const list = element.parentElement;
            element.remove();
            if (list !== this.host && !list.firstChild) list.remove();
        }
        // A block is settled when the next one has begun with a line that is whole.
        let settled = 0;
        const whole = isOver ? Infinity : lines.length - 1;
        while (settled + 1 < blocks.length && blocks[settled + 1].begin < whole)
            place(this.host, blocks[settled++]);
        const rest = blocks.slice(settled);
        this.tail = lines.slice(rest[0]?.begin ?? lines.length).join("\n");
        this.open = rest.map((block) => place(this.host, block));
        const isCode = rest.length === 1 && rest[0].code;
        this.code = isCode ? this.open[0].querySelector("code").firstChild : null;
    }
}

// ---- The server -------------------------------------------------------------------------------

class Refusal extends Error {}

async function refusalOf(response) {
    let text = `The server replied ${response.status}.`;
    try {
        const { error } = await response.json();
        text = error.message ?? error;
    } catch { /* no JSON: the status must do */ }
    const after = Number(response.headers.get("Retry-After"));
    return new Refusal(after ? `${text} (Try again in ${after} s.)` : text);
}

// Asks the person for a key; false when there will be none.
function askForKey(wasWrong) {
    const dialog = $("key-dialog");
    $("key-text").textContent = wasWrong ? "The server did not take the key."
        : "It is kept until this tab is closed.";
    $("key").value = "";
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
    return new Promise((resolve) => dialog.addEventListener("close", () => {
        const key = dialog.returnValue === "use" && $("key").value.trim();
        if (key) forTab.setItem("carat.key", key); // forgotten with the tab
        resolve(Boolean(key));
    }, { once: true }));
}

async function call(path, { body, signal } = {}) {
    for (;;) {
        const key = forTab.getItem("carat.key");
        const headers = { ...(body && { "Content-Type": "application/json" }),
                          ...(key && { Authorization: `Bearer ${key}` }) };
        const response = await fetch(path, { method: body ? "POST" : "GET", headers, signal,
                                             body: body && JSON.stringify(body) });
        if (response.ok) return response;
        if (response.status !== 401 || !await askForKey(Boolean(key)))
            throw await refusalOf(response);
    }
}

// The data of server-sent events. Lines that begin with a colon only keep the connection alive.
async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let data = [];
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            const lines = (rest + value).split(/\r?\n/);
            rest = lines.pop();
            for (const line of lines) {
                if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
                if (line !== "" || data.length === 0) continue;
                yield data.join("\n");
                data = [];
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

// The chunks of a streamed answer.
async function* chunksOf(body, signal) {
    const response = await call("v1/chat/completions", { body, signal });
    for await (const data of eventsOf(response)) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Refusal(chunk.error.message ?? String(chunk.error));
        yield chunk;
    }
    throw new Refusal("The connection was cut before the answer had ended.");
}

// ---- Kept chats -------------------------------------------------------------------------------

// A chat is {id, title, changed, settings, messages}. A message is {role, text}; an answer may also
// have thought, isJson, calls [{id, name, arguments}], stats, finish, failure; a tool's result id
// and name.

const chats = new Map(); // all of them, by id
let current = null;
let database = null;

const resultOf = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
});
const table = (mode) => database.transaction("chats", mode).objectStore("chats");

async function openStore() {
    try {
        const request = indexedDB.open("carat", 1);
        request.onupgradeneeded = () =>
            request.result.createObjectStore("chats", { keyPath: "id" });
        database = await resultOf(request);
        for (const chat of await resultOf(table("readonly").getAll())) chats.set(chat.id, chat);
    } catch (error) {
        notify(`Chats will be lost when this page is closed: ${error.message}`);
    }
}

async function keep(chat) {
    if (!database || !chats.has(chat.id)) return;
    try {
        await resultOf(table("readwrite").put(chat));
    } catch (error) {
        const isFull = error.name === "QuotaExceededError";
        notify(isFull ? "The browser's storage is full: export chats and delete some of them."
            : `This chat could not be kept: ${error.message}`);
    }
}

function forget(chat) {
    chats.delete(chat.id);
    if (database) table("readwrite").delete(chat.id);
}

function newChat() {
    const { schema, ...settings } = current?.settings ?? {}; // all but the form of answers goes on
    const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
    return { id, title: "New chat", changed: Date.now(), settings, messages: [] };
}

const textOr = (value, other = "") => (typeof value === "string" ? value : other);

// A chat from a file, with nothing in it that was not checked; null: it is none.
function chatFrom(raw) {
    if (!Array.isArray(raw?.messages)) return null;
    const title = textOr(raw.title, "Imported chat").slice(0, 200);
    const chat = { ...newChat(), title, settings: {} };
    for (const name of SETTINGS) {
        const value = textOr(raw.settings?.[name]);
        if (value) chat.settings[name] = value;
    }
    for (const { role, text, thought, isJson, calls, id, name } of raw.messages) {
        if (!["user", "assistant", "tool"].includes(role)) continue;
        const message = { role, text: textOr(text) };
        if (role === "tool") Object.assign(message, { id: textOr(id), name: textOr(name) });
        if (role === "assistant") {
            message.thought = textOr(thought);
            message.isJson = isJson === true;
            message.calls = (Array.isArray(calls) ? calls : []).map((one) => ({
                id: textOr(one?.id), name: textOr(one?.name), arguments: textOr(one?.arguments) }));
        }
        chat.messages.push(message);
    }
    return chat;
}

function exportChats() {
    const text = JSON.stringify({ carat: 1, chats: [...chats.values()] }, null, 1);
    const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    make("a", { href, download: "carat-chats.json" }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
}

async function importChats(file) {
    try {
        const found = JSON.parse(await file.text()).chats.map(chatFrom).filter(Boolean);
        for (const chat of found) {
            chats.set(chat.id, chat);
            await keep(chat);
        }
        showState();
        notify(`${found.length} ${found.length === 1 ? "chat" : "chats"} imported.`);
    } catch {
        notify(`${file.name} is no file that this page has exported.`);
    }
}

// ---- Settings ---------------------------------------------------------------------------------

const SAMPLING = ["temperature", "top_p", "top_k", "min_p"];
const NUMBERS = [...SAMPLING, "max_tokens", "seed", "reasoning_budget"];
const JSON_FIELDS = { schema: "object", tools: "list" };
const SETTINGS = ["system", "thinking", ...NUMBERS, ...Object.keys(JSON_FIELDS)];

class Mistake extends Error { // of a person, in a field
    constructor(field, text) {
        super(text);
        this.field = field;
    }
}

// The value of a field with JSON; undefined when it is empty.
function readJson(settings, name) {
    if (!settings[name]?.trim()) return undefined;
    let value;
    try {
        value = JSON.parse(settings[name]);
    } catch (error) {
        throw new Mistake(name, `This is not JSON: ${error.message}`);
    }
    const isList = Array.isArray(value);
    if (value === null || typeof value !== "object" || isList !== (JSON_FIELDS[name] === "list"))
        throw new Mistake(name, `A JSON ${JSON_FIELDS[name]} is expected here.`);
    return value;
}

function readNumber(settings, name) {
    if (!$(name).checkValidity()) throw new Mistake(name, $(name).validationMessage);
    return settings[name] ? Number(settings[name]) : undefined;
}

function messageForServer({ role, text, thought, calls, id }) {
    if (role === "user") return { role, content: text };
    if (role === "tool") return { role, tool_call_id: id, content: text };
    const message = { role, content: text };
    if (thought) message.reasoning_content = thought;
    if (calls?.length) message.tool_calls = calls.map(({ id, name, arguments: text }) =>
        ({ id, type: "function", function: { name, arguments: text } }));
    return message;
}

// The body of a request for the next answer. Throws a Mistake.
function requestOf({ settings, messages }) {
    const body = { model: server.model, stream: true, stream_options: { include_usage: true },
                   return_progress: true };
    const system = settings.system?.trim() ? [{ role: "system", content: settings.system }] : [];
    const said = messages.filter(({ role, text, calls }) =>
        role !== "assistant" || text || calls?.length);
    body.messages = [...system, ...said.map(messageForServer)];
    for (const name of NUMBERS) body[name] = readNumber(settings, name);
    if (settings.thinking)
        body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
    body.tools = readJson(settings, "tools");
    const schema = readJson(settings, "schema");
    if (schema) body.response_format = { type: "json_schema",
                                         json_schema: { name: "answer", strict: true, schema } };
    return body;
}

function showMistakes() {
    for (const name of Object.keys(JSON_FIELDS)) {
        let text = "";
        try {
            readJson(current.settings, name);
        } catch (mistake) {
            text = mistake.message;
        }
        $(`${name}-error`).textContent = text;
        $(name).setAttribute("aria-invalid", Boolean(text));
    }
}

function showSettings() {
    for (const name of SETTINGS)
        if (name !== "thinking") $(name).value = current.settings[name] ?? "";
    for (const choice of document.getElementsByName("thinking"))
        choice.checked = choice.value === (current.settings.thinking ?? "");
    showMistakes();
}

function takeSetting({ target }) {
    const name = target.name || target.id;
    if (target.value) current.settings[name] = target.value;
    else delete current.settings[name];
    showMistakes();
    keep(current);
}

// ---- Messages on the screen -------------------------------------------------------------------

// A conversation follows what comes as long as its end is in sight.
let isAtEnd = true, lastTop = 0;

// The browser tells of scrolling with its next frame only: whoever has just scrolled up is asked.
function follow(isForced = false) {
    const scroller = $("scroller");
    if (isForced) isAtEnd = true;
    else if (scroller.scrollTop < lastTop) onScroll();
    if (!isAtEnd) return;
    scroller.scrollTop = scroller.scrollHeight;
    lastTop = scroller.scrollTop;
}

function statsLine({ stats, finish }) {
    const parts = [];
    if (stats?.rate) parts.push(`${count(+stats.rate.toPrecision(3))} tokens/s`);
    else if (stats?.pieces) parts.push(liveSpeed({ stats }));
    if (stats?.answer !== undefined) parts.push(`${count(stats.answer)} tokens`);
    const cached = stats?.cached ? ` (${count(stats.cached)} cached)` : "";
    if (stats?.prompt !== undefined) parts.push(`prompt ${count(stats.prompt)}${cached}`);
    if (stats?.first) parts.push(`first token after ${stats.first.toFixed(2)} s`);
    if (finish === "length") parts.push("ended at the limit of tokens");
    if (finish === "stopped") parts.push("stopped");
    return parts.filter(Boolean).join(" · ");
}

// While an answer comes: a piece of it is usually a token.
const liveSpeed = ({ stats: { pieces, seconds } }) =>
    (seconds > 0.5 ? `about ${Math.round((pieces - 1) / seconds)} tokens/s` : "");

// An answer as it grows: text arrives at any time, drawing is done once a frame and for at most a
// third of the time.
class AnswerView {
    constructor(chat, message) {
        Object.assign(this, { chat, message, timer: 0, drawnAt: 0, cost: 0 });
        this.shown = { thought: 0, text: 0 }; // characters on the screen
        this.waiting = make("p", { className: "waiting", hidden: true }, "Waiting for the server");
        this.summary = make("summary", {}, "Thought");
        const thoughtText = make("div", { className: "text" });
        this.thought = make("details", { className: "thought", hidden: true },
                            this.summary, thoughtText);
        const text = make("div", { className: "text" });
        this.calls = make("div");
        this.failure = make("div");
        this.actions = make("div", { className: "actions" });
        this.element = make("article", { className: "message assistant", "aria-label": "Answer" },
            this.waiting, this.thought, text, this.calls, this.failure, this.actions);
        this.markdown = { thought: new Markdown(thoughtText), text: new Markdown(text) };
        if (message.isJson) this.markdown.text.append("```json\n");
    }

    begin() {
        this.element.setAttribute("aria-busy", "true");
        this.waiting.hidden = false;
        this.thought.classList.add("live");
        this.draw();
    }

    end() {
        this.element.removeAttribute("aria-busy");
        this.thought.classList.remove("live");
        clearTimeout(this.timer);
        this.isOver = true;
        this.draw();
    }

    progress({ processed, total }) {
        this.waiting.textContent = `Reading the prompt: ${Math.floor(100 * processed / total)} %`;
    }

    soon() {
        if (this.timer) return;
        const wait = this.drawnAt + 2 * this.cost - performance.now();
        const draw = () => { if (!this.isOver) this.draw(); };
        this.timer = setTimeout(() => requestAnimationFrame(draw), Math.max(wait, 0));
    }

    draw() {
        const begin = performance.now();
        const { message, isOver } = this;
        this.timer = 0;
        for (const part of ["thought", "text"]) {
            const news = (message[part] ?? "").slice(this.shown[part]);
            if (news || isOver) this.markdown[part].append(news, isOver);
            this.shown[part] += news.length;
        }
        this.thought.hidden = !message.thought;
        const isThinking = !isOver && !message.text && !message.calls?.length;
        this.summary.textContent = isThinking ? "Thinking …" : thoughtTitle(message);
        if (!this.thought.hidden || !isThinking) this.waiting.hidden = true;
        this.drawCalls();
        if (isOver) this.drawEnd();
        else this.actions.replaceChildren(make("span", { className: "stats" }, liveSpeed(message)));
        if (this.element.isConnected) follow();
        this.drawnAt = performance.now();
        this.cost = this.drawnAt - begin;
    }

    drawCalls() {
        this.calls.replaceChildren(...(this.message.calls ?? []).map(callView));
        const isLast = this.chat.messages.at(-1) === this.message;
        if (this.isOver && isLast && this.message.calls?.length)
            this.calls.append(this.resultForm());
    }

    // Where a person says what the tools returned.
    resultForm() {
        const { calls } = this.message;
        const fields = calls.map(() => make("textarea", { rows: 2, className: "code" }));
        const send = () => {
            calls.forEach(({ id, name }, i) =>
                this.chat.messages.push({ role: "tool", id, name, text: fields[i].value }));
            show(this.chat);
            answer(this.chat);
        };
        const labels = calls.map(({ name }, i) =>
            make("label", {}, `Result of ${name}`, fields[i]));
        const press = make("div", { className: "buttons" },
                           button("Send the results", send, "main"));
        return make("div", { className: "call" }, ...labels, press);
    }

    drawEnd() {
        const { message, chat } = this;
        this.failure.replaceChildren();
        if (message.failure) {
            this.failure.append(make("div", { className: "failure", role: "alert" },
                make("p", {}, message.failure),
                button("Try again", () => answerAgain(chat, message), "")));
        }
        this.actions.replaceChildren(copyButton(() => message.text),
            button("Regenerate", () => answerAgain(chat, message)),
            make("span", { className: "stats" }, statsLine(message)));
    }
}

const thoughtTitle = ({ stats }) =>
    (stats?.thought >= 0.1 ? `Thought for ${stats.thought.toFixed(1)} s` : "Thought");

const callBox = (words, name, text) => make("div", { className: "call" },
    make("p", { className: "name" }, words, make("code", {}, name)), make("pre", {}, text));

function callView({ name, arguments: text }) {
    let form = text;
    try {
        form = JSON.stringify(JSON.parse(text), null, 2);
    } catch { /* still on its way */ }
    return callBox("Calls ", name, form);
}

function userView(chat, message) {
    const element = make("article", { className: "message user", "aria-label": "You" });
    const view = () => element.replaceChildren(make("div", { className: "said" }, message.text),
        make("div", { className: "actions" }, copyButton(() => message.text),
             button("Edit", edit)));
    function edit() {
        const field = make("textarea", { value: message.text, "aria-label": "Edit the message" });
        field.rows = Math.min(12, message.text.split("\n").length + 1);
        const cancel = () => { view(); $("input").focus(); };
        const send = () => field.value.trim() && sayAgain(chat, message, field.value);
        field.addEventListener("keydown", (event) => {
            if (isSend(event)) send();
            else if (event.key === "Escape") cancel();
            else return;
            event.preventDefault();
            event.stopPropagation();
        });
        element.replaceChildren(make("div", { className: "edit" }, field, make("div",
            { className: "buttons" }, button("Cancel", cancel), button("Send", send, "main"))));
        field.focus();
    }
    view();
    return element;
}

const toolView = ({ name, text }) =>
    make("article", { className: "message tool", "aria-label": "Result of a tool" },
         callBox("Result of ", name, text));

function viewOf(chat, message) {
    if (message.role === "user") return userView(chat, message);
    if (message.role === "tool") return toolView(message);
    const going = running.get(chat.id);
    if (going?.view.message === message) return going.view.element;
    const view = new AnswerView(chat, message);
    view.end();
    return view.element;
}

function show(chat) {
    current = chat;
    $("log").replaceChildren(...chat.messages.map((message) => viewOf(chat, message)));
    showSettings();
    showState();
    follow(true);
}

// ---- Answering --------------------------------------------------------------------------------

const running = new Map(); // chat id -> {view, controller}

// What a chunk adds to the message.
function take(message, chunk, clock) {
    const { delta, finish_reason: finish } = chunk.choices?.[0] ?? {};
    const thought = delta?.reasoning_content ?? delta?.reasoning;
    const isAnswer = delta?.content || delta?.tool_calls;
    if (thought || isAnswer) {
        message.stats.first ??= clock();
        message.stats.pieces = (message.stats.pieces ?? 0) + 1;
        message.stats.seconds = clock() - message.stats.first;
    }
    if (isAnswer && message.thought) message.stats.thought ??= clock() - message.stats.first;
    if (thought) message.thought += thought;
    if (delta?.content) message.text += delta.content;
    for (const { index, id, function: called } of delta?.tool_calls ?? []) {
        const one = (message.calls[index] ??= { id, name: "", arguments: "" });
        one.name += called?.name ?? "";
        one.arguments += called?.arguments ?? "";
    }
    if (finish) message.finish = finish;
    const { usage, timings } = chunk;
    if (usage) {
        message.stats.answer = usage.completion_tokens;
        message.stats.prompt = usage.prompt_tokens;
        message.stats.cached = usage.prompt_tokens_details?.cached_tokens;
    }
    if (timings) message.stats.rate = timings.predicted_per_second;
}

// Asks for an answer to what the chat says so far.
async function answer(chat) {
    const body = bodyFor(chat);
    if (!body) return;
    const message = { role: "assistant", text: "", thought: "", calls: [], stats: {},
                      isJson: Boolean(body.response_format) };
    const view = new AnswerView(chat, message);
    const controller = new AbortController();
    chat.messages.push(message);
    running.set(chat.id, { view, controller });
    view.begin();
    if (chat === current) $("log").append(view.element);
    showState();
    follow(true);
    speak("Answering");
    const begin = performance.now();
    let keptAt = begin;
    try {
        for await (const chunk of chunksOf(body, controller.signal)) {
            take(message, chunk, () => (performance.now() - begin) / 1000);
            if (chunk.prompt_progress) view.progress(chunk.prompt_progress);
            view.soon();
            if (performance.now() - keptAt < 2000) continue;
            keptAt = performance.now();
            keep(chat);
        }
    } catch (error) {
        if (controller.signal.aborted) message.finish = "stopped";
        else message.failure = error instanceof Refusal ? error.message
            : `The server could not be reached, or the connection broke (${error.message}).`;
    }
    if (running.get(chat.id)?.view === view) running.delete(chat.id);
    view.end();
    chat.changed = Date.now();
    keep(chat);
    showState();
    speak(message.failure ? "The answer failed" : "The answer is complete");
}

function speak(text) { // for those who listen
    $("spoken").textContent = text;
}

// The body of a request, or null after a person has been told what is wrong with a setting.
function bodyFor(chat) {
    try {
        return requestOf(chat);
    } catch (mistake) {
        if (!(mistake instanceof Mistake)) throw mistake;
        openPanel("settings");
        $(mistake.field).focus();
        notify(`Not sent. ${mistake.message}`);
        return null;
    }
}

const stop = (chat) => running.get(chat.id)?.controller.abort();

// Answers once more, in the place of this answer and what follows it.
function answerAgain(chat, message) {
    if (!bodyFor(chat)) return;
    cutAt(chat, message);
    answer(chat);
}

function sayAgain(chat, message, text) {
    if (!bodyFor(chat)) return;
    cutAt(chat, message);
    say(chat, text);
}

function cutAt(chat, message) {
    stop(chat);
    running.delete(chat.id);
    chat.messages.length = chat.messages.indexOf(message);
    while ($("log").childElementCount > chat.messages.length) $("log").lastElementChild.remove();
}

function say(chat, text) {
    if (!chats.has(chat.id)) chats.set(chat.id, chat);
    if (chat.messages.length === 0) chat.title = text.trim().split("\n")[0].slice(0, 80);
    const message = { role: "user", text };
    chat.messages.push(message);
    chat.changed = Date.now();
    keep(chat);
    $("log").append(userView(chat, message));
    answer(chat);
}

function send() {
    const text = $("input").value;
    if (!text.trim() || running.has(current.id) || !bodyFor(current)) return;
    $("input").value = "";
    $("notice").replaceChildren();
    say(current, text);
}

// Enter sends. On phones it begins a line, as their keyboards have no Shift with it.
const isSend = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing &&
    !matchMedia("(pointer: coarse)").matches;

// ---- The list of chats ------------------------------------------------------------------------

function listChats() {
    const sorted = [...chats.values()].sort((a, b) => b.changed - a.changed);
    $("chat-list").replaceChildren(...sorted.map((chat) => {
        const open = button(chat.title, () => { show(chat); closePanel("chats"); }, "open");
        const remove = button("×", () => removeChat(chat), "icon remove");
        remove.setAttribute("aria-label", `Delete the chat ${chat.title}`);
        if (chat === current) open.setAttribute("aria-current", "true");
        open.classList.toggle("busy", running.has(chat.id));
        return make("li", { className: chat === current ? "current" : "" }, open, remove);
    }));
    $("export").disabled = chats.size === 0;
    forTab.setItem("carat.current", current.id);
}

function removeChat(chat) {
    stop(chat);
    forget(chat);
    if (chat === current) show(newChat());
    showState();
    $("input").focus();
    notify("The chat was deleted.", "Undo", () => {
        chats.set(chat.id, chat);
        keep(chat);
        show(chat);
    });
}

function beginChat() {
    show(newChat());
    closePanel("chats");
    $("input").focus();
}

// ---- The frame --------------------------------------------------------------------------------

const server = { model: "" };
const narrow = matchMedia("(max-width: 60rem)");
const opener = { chats: "show-chats", settings: "show-settings" };

function showPanels() {
    const isOver = narrow.matches && Object.keys(opener).some((name) => !$(name).hidden);
    $("shade").hidden = !isOver;
    document.querySelector("main").inert = isOver; // what lies below cannot be reached by Tab
    for (const [name, id] of Object.entries(opener))
        $(id).setAttribute("aria-expanded", String(!$(name).hidden));
}

function openPanel(name) {
    if (narrow.matches) for (const other of Object.keys(opener)) $(other).hidden = true;
    $(name).hidden = false;
    showPanels();
    if (narrow.matches) $(name).querySelector("button").focus();
}

// Where a panel lies over the conversation it closes by itself; next to it, only when asked to.
function closePanel(name, isAsked = false) {
    if ($(name).hidden || !(narrow.matches || isAsked)) return;
    $(name).hidden = true;
    showPanels();
    if (isAsked) $(opener[name]).focus();
}

// What surrounds the messages: it depends on the current chat and on what runs.
function showState() {
    $("empty").hidden = current.messages.length > 0;
    $("title").textContent = current.title;
    document.title = `${current.title} · carat`;
    listChats();
    showField();
}

function showField() {
    const isRunning = running.has(current.id);
    $("send").hidden = isRunning;
    $("stop").hidden = !isRunning;
    $("send").disabled = !$("input").value.trim();
    // Where CSS cannot yet fit the field to its text.
    $("input").rows = Math.min(10, $("input").value.split("\n").length);
}

const THEMES = { system: ["half", "as the system"], light: ["sun", "light"],
                 dark: ["moon", "dark"] };

function showTheme(theme) {
    const [name, text] = THEMES[theme];
    document.documentElement.dataset.theme = theme;
    $("theme").querySelector("use").setAttribute("href", `#${name}`);
    $("theme").setAttribute("aria-label", `Colours: ${text}`);
    $("theme").title = `Colours: ${text}`;
}

function nextTheme() {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    forEver.setItem("carat.theme", next);
    showTheme(next);
}

// What the server is: for people, and as defaults in the settings.
async function showServer() {
    try {
        const { data: [model] } = await (await call("v1/models")).json();
        server.model = model.id;
        $("model").textContent = model.id;
        const context = model.meta?.n_ctx;
        $("facts").textContent = context ? `${model.id}, with room for ${count(context)} tokens`
            : model.id;
        const props = await (await call("props")).json();
        const defaults = props.default_generation_settings?.params ?? {};
        for (const name of SAMPLING)
            if (defaults[name] !== undefined) $(name).placeholder = +defaults[name].toFixed(3);
    } catch (error) {
        if (!server.model)
            notify(`The server did not say what it is: ${error.message}`, "Try again", showServer);
    }
}

function onKey(event) {
    if ($("key-dialog").open) return;
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "k") beginChat();
    else if (event.key === "Escape" && running.has(current.id)) stop(current);
    else if (event.key === "Escape" && narrow.matches)
        for (const name of Object.keys(opener)) closePanel(name, true);
    else return;
    event.preventDefault();
}

// Who scrolls up, however little, stays there; who comes near the end follows again.
function onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = $("scroller");
    const isUp = scrollTop < lastTop;
    lastTop = scrollTop;
    isAtEnd = scrollHeight - scrollTop - clientHeight < (isUp ? 2 : 48);
    $("to-end").hidden = isAtEnd;
}

function listen() {
    const on = (id, event, action) => $(id).addEventListener(event, action);
    on("send", "click", () => { send(); $("input").focus(); });
    on("stop", "click", () => { stop(current); $("input").focus(); });
    on("input", "input", showField);
    on("input", "keydown", (event) => {
        if (!isSend(event)) return;
        event.preventDefault();
        send();
    });
    on("new-chat", "click", beginChat);
    on("export", "click", exportChats);
    on("import", "click", () => $("import-file").click());
    on("import-file", "change", ({ target }) => {
        importChats(target.files[0]);
        target.value = "";
    });
    on("theme", "click", nextTheme);
    on("reset", "click", () => { current.settings = {}; showSettings(); keep(current); });
    on("settings", "input", takeSetting);
    on("shade", "click", () => Object.keys(opener).forEach((name) => closePanel(name, true)));
    for (const [name, id] of Object.entries(opener))
        on(id, "click", () => ($(name).hidden ? openPanel(name) : closePanel(name, true)));
    for (const close of document.querySelectorAll("[data-closes]"))
        close.addEventListener("click", () => closePanel(close.dataset.closes, true));
    on("key-cancel", "click", () => $("key-dialog").close(""));
    on("scroller", "scroll", onScroll);
    on("to-end", "click", () => follow(true));
    document.addEventListener("keydown", onKey);
    narrow.addEventListener("change", () => { $("chats").hidden = narrow.matches; showPanels(); });
}

const theme = forEver.getItem("carat.theme");
showTheme(theme in THEMES ? theme : "system");
$("chats").hidden = narrow.matches;
listen();
showPanels();
await openStore();
show(chats.get(forTab.getItem("carat.current")) ?? newChat());
$("input").focus();
showServer();
