"""Whether a value fits a JSON Schema: the keywords of tests/golden/schemas.json. Any other is an
error, so that no schema is only half understood."""
import math
import re

IGNORED = {"$schema", "$id", "$defs", "definitions", "title", "description", "default", "examples"}
FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "email": r"[^@\s\"\\]+@[^@\s\"\\]+",
    "ipv4": r"\d{1,3}(\.\d{1,3}){3}",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: is_number(v) and v == int(v),
    "number": is_number,
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def same(a, b):
    """Equal as JSON: true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def find(root, reference):
    if not reference.startswith("#"):
        raise ValueError(f"$ref {reference}")
    for part in reference[1:].split("/")[1:]:
        root = root[part.replace("~1", "/").replace("~0", "~")]
    return root


def check_string(schema, text):
    if len(text) < schema.get("minLength", 0):
        yield "too short"
    if len(text) > schema.get("maxLength", len(text)):
        yield "too long"
    if "pattern" in schema and not re.search(schema["pattern"], text, re.ASCII):
        yield f"{text!r} is not of the pattern"
    if "format" in schema and not re.fullmatch(FORMATS[schema["format"]], text):
        yield f"{text!r} is no {schema['format']}"


def check_number(schema, number):
    for key, fits in (("minimum", number >= schema.get("minimum", -math.inf)),
                      ("maximum", number <= schema.get("maximum", math.inf)),
                      ("exclusiveMinimum", number > schema.get("exclusiveMinimum", -math.inf)),
                      ("exclusiveMaximum", number < schema.get("exclusiveMaximum", math.inf))):
        if not fits:
            yield f"{number} is beyond {key}"


def check_array(schema, items, root):
    first = schema.get("prefixItems", [])
    if len(items) < schema.get("minItems", 0):
        yield "too few items"
    if len(items) > schema.get("maxItems", len(items)):
        yield "too many items"
    for i, item in enumerate(items):
        inner = first[i] if i < len(first) else schema.get("items", True)
        yield from (f"[{i}]: {p}" for p in problems(inner, item, root))


def check_object(schema, members, root):
    own = schema.get("properties", {})
    yield from (f"{key} is missing" for key in schema.get("required", []) if key not in members)
    patterns = schema.get("patternProperties", {}).items()
    for key, value in members.items():
        inner = own.get(key, schema.get("additionalProperties", True))
        inner = next((s for pattern, s in patterns if re.search(pattern, key, re.ASCII)), inner)
        yield from (f"{key}: {p}" for p in problems(inner, value, root))


def check_combined(schema, value, root):
    def fitting(key):
        return sum(not list(problems(inner, value, root)) for inner in schema[key])
    if "anyOf" in schema and fitting("anyOf") == 0:
        yield "fits none of anyOf"
    if "oneOf" in schema and fitting("oneOf") != 1:
        yield "does not fit one of oneOf"
    if "allOf" in schema and fitting("allOf") != len(schema["allOf"]):
        yield "does not fit all of allOf"


KNOWN = IGNORED | {
    "type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "minLength", "maxLength", "pattern",
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "prefixItems", "items",
    "minItems", "maxItems", "properties", "required", "additionalProperties", "patternProperties",
    "nullable"}


def problems(schema, value, root=None):
    """What does not fit, as texts; nothing if the value fits."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        if not schema:
            yield "nothing fits"
        return
    unknown = schema.keys() - KNOWN
    if unknown:
        raise ValueError(f"keywords that are not checked here: {sorted(unknown)}")
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if schema.get("nullable") and value is None:
        return
    if types and not any(TYPES[t](value) for t in types):
        yield f"{value!r} is of no type in {types}"
    if "const" in schema and not same(schema["const"], value):
        yield f"{value!r} is not the constant"
    if "enum" in schema and not any(same(one, value) for one in schema["enum"]):
        yield f"{value!r} is not listed"
    if "$ref" in schema:
        yield from problems(find(root, schema["$ref"]), value, root)
    yield from check_combined(schema, value, root)
    if isinstance(value, str):
        yield from check_string(schema, value)
    elif is_number(value):
        yield from check_number(schema, value)
    elif isinstance(value, list):
        yield from check_array(schema, value, root)
    elif isinstance(value, dict):
        yield from check_object(schema, value, root)
