"""What a text must not tell: the one list of patterns of secrets, for every kind of file that is handed on.

Passwords, tokens and keys by the name in front of them or by their own form, mail addresses, hosts of a cluster, and
paths of a machine. Names of kernels, layers and tensors stay, also those that have `key` or `token` in them.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

REDACTED: Final = "[redacted]"
_SECRET_WORDS: Final = r"SECRET|TOKEN|KEY|PASS|AUTH|CREDENTIAL|PWD|COOKIE"
_OF_VARIABLE: Final = re.compile(
    r"SECRET|TOKEN(?!I[ZS])|(?<!MON)(?<!TUR)KEY(?!BOARD|POINT|FRAME)|PASS(?!ED|ES|AGE)|AUTH(?!OR(?!I[ZS]))|CREDENTIAL|"
    "PWD|COOKIE",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_ALWAYS: Final = re.compile(
    r"secret|passw(?:or)?d|passphrase|passcode|credential|(?:api|access|private|auth|account)[_.-]?(?:key|token)|"
    r"(?:^|[_.-])(?:auth|oauth2?|authorization|authentication|pwd|cookie)(?:$|[_.-])",
    re.IGNORECASE,
)
"""Names that speak of a secret in any spelling."""
_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OF_TENSORS: Final = re.compile(
    "bos|cls|sep|mask|pad|eos|unk|dist|pos|type|num|max|min|new|next|prev|per|image|text|class|query|reg|"
    "register|special|start|end|first|last|stop|audio|video|input|output|prompt|vision|patch|word|sub|target|"
    "source|decoder|encoder|forced|generated|previous|current|extra"
)
"""Words in front of `token` in the names of tensors and settings of a model."""
_OF_KEYS: Final = re.compile(
    "ssh|signing|encryption|shared|master|license|licence|service|client|storage|subscription|deploy|gpg|pgp|"
    "rsa|admin|ngc|wandb|openai|hf|aws|azure|gcp|cipher|crypto|session|hmac|aes|ssl|tls|s3|secret|huggingface"
)
_OF_PASS: Final = re.compile("db|user|my|mysql|pg|postgres|redis|smtp|mail|admin|root|ftp|http|proxy|login")
_TRIVIAL: Final = re.compile(r"(?:true|false|none|null|yes|no|on|off|\d{1,3}|\[redacted\]|<\w*>|\*+)?", re.IGNORECASE)
"""Values that tell nothing."""

_QUOTES: Final = "\\\"'"
_QUOTE: Final = r"\\*[\"']"
_VALUE: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|\\+\"[^\"\n]*?\\+\"|[^\s\"',;&|<>(){}\\]+")
_SCHEME: Final = r"(?:(?i:Bearer|Basic|Token|Digest|ApiKey|Negotiate|NTLM)\s+)?"
_ASSIGNED: Final = re.compile(
    rf"(?<![\w.-])(?P<name>-{{0,2}}[A-Za-z_][\w.-]*)(?P<sign>(?:{_QUOTE})?\s*(?:=>|=|:(?!:))\s*{_SCHEME})"
)
"""`HF_TOKEN=…`, `"password": "…"`, `Authorization: Bearer …`, `--token=…`."""
_FLAG: Final = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w-]*)(?P<sign>\s+)(?=\S)")
_FLAGS: Final = frozenset({"p", "key", "pass", "auth", "token", "pw"})
"""Flags of which the name alone says it."""
_USER_FLAG: Final = re.compile(r"(?<!\S)(-u|--user)([ =]+)(?=[^\s:]+:)\S+")
_NETRC: Final = re.compile(r"\b(login\s+)\S+(\s+password\s+)\S+")
_GLUED: Final = re.compile(r"\b(sshpass\s+-p)(?!\s)\S+")
_SIGNED: Final = re.compile(
    r"([?&](?:sig|signature|key|code|x-amz-\w+|x-goog-\w+)=|SharedAccessSignature\s*[=:]\s*|"
    r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^&\s\"'<>;]+",
    re.IGNORECASE,
)
_TO_THE_END: Final = re.compile(
    r"(Authorization\W{1,4}Digest\s+|pass(?:phrase|word|wd)\s*:\s+(?=\w[^\n\"',;{}\]]* \w))"
    r"(?!\[redacted\])[^\n\"',;{}\]].*?"
    r"(?=[\n;{}\]]|$)",
    re.IGNORECASE | re.MULTILINE,
)
"""Values of several words."""
_SAID: Final = re.compile(
    r"\b(pass(?:word|wd|phrase|code)\s+(?:is|was)\s+(?!(?:required|needed|not|no|missing|invalid|wrong|incorrect|empty|"
    r"unset|set|too|expired|used|a|an|the|none|optional|ok|correct|accepted|rejected|protected|read|stored|sent|in|being|"
    r"never|only|also|for|to|unknown|safe|here|there|valid|changed|hidden|shown|asked|taken|given)\b)|"
    r"(?:pass(?:word|wd|phrase|code)|pwd)\s+(?=[\w@#$%!-]*\d)(?=[\w@#$%!-]*[A-Za-z])|"
    r"(?:token|secret|(?:api|access|secret|private|auth)[ _-]?key)\s+(?:is|was)\s+"
    r"(?=[\w.+/=!-]*\d)(?=[\w.+/=!-]*[A-Za-z]))"
    r"(?!\[redacted\])(?:\"[^\"\n]+\"|'[^'\n]+'|[^\s\"',;]{4,})",
    re.IGNORECASE,
)
"""In a sentence: `the password is …`, `your token is …`, of which the latter tells by its form that it is one."""
_LOGIN: Final = re.compile(r"\b(wandb\s+login\s+(?:--\S+\s+)*)[0-9a-f]{40}\b")
_BEARER: Final = re.compile(r"\b(Bearer\s+)(?=[\w.~+/=-]*\d|[\w.~+/=-]{20})[\w.~+/=-]{4,}", re.IGNORECASE)
_BASIC: Final = re.compile(r"\b(Basic\s+)([A-Za-z0-9+/]{6,}={0,2})", re.IGNORECASE)
_IN_URL: Final = re.compile(
    r"\b([A-Za-z][A-Za-z0-9+.-]*://)(?!\[redacted\]@)"
    r"(?:[^\s/@\"'<>\x00-\x1f]{0,200}:[^\s@\"'<>\x00-\x1f]{0,500}|[^\s/@\"'<>\x00-\x1f]{8,500})@"
)
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|\Z)")
_BY_FORM: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|"
    r"gl(?:pat|dt|rt|ft|soat|cbt|ptt|agent)-[\w-]{16,}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|"
    r"xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|"
    r"(?:sk|rk|pk)_(?:live|test)_\w{10,}|sk-(?=[\w-]*\d)[\w-]{16,}|gsk_\w{16,}|r8_\w{16,}|nvapi-[\w-]{16,}|"
    r"pypi-(?=[\w-]*[\dA-Z])[\w-]{16,}|npm_[A-Za-z0-9]{16,}|SG\.[\w-]{10,}\.[\w-]{10,}|"
    r"eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?|dckr_pat_[\w-]{16,}|do[opr]_v1_\w{16,}|glsa_\w{16,}|hv[sb]\.[\w-]{16,}|"
    r"tskey-[\w-]{12,}|dapi[0-9a-f]{32}|lin_api_\w{16,}|ATATT3[\w=-]{16,}|shp(?:at|ss|ca|pa)_\w{16,}|"
    r"\d{8,10}:AA[\w-]{30,}|AGE-SECRET-KEY-\w{16,}|NRAK-\w{16,}|PMAK-[\w-]{16,}|rubygems_\w{16,}|pul-[0-9a-f]{20,}|whsec_\w{16,}|"
    r"ssh-(?:rsa|ed25519|dss) [A-Za-z0-9+/=]{16,}"
    r")"
)
"""Tokens that show by their prefix what they are, as the provider says."""
_MAIL: Final = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]*(?:@|%40)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(?![\w.])"
)

_TLD: Final = (
    "(?:com|org|net|edu|gov|mil|int|io|ai|de|uk|fr|ch|eu|jp|cn|kr|ca|au|nl|se|fi|es|pl|dk|cz|it|be|pt|gr|tw|sg|br|ie|"
    "internal|local|lan|localdomain|corp|intra)"
)
_HOST: Final = re.compile(
    rf"(?<![\w./-])(?:[a-z][a-z-]*\d[\w-]*(?:\.[a-z0-9-]+)+\.{_TLD}|"
    rf"[a-z][\w-]*\.(?:[a-z0-9-]+\.)*(?:hpc|slurm|cluster|compute|internal)\.(?:[a-z0-9-]+\.)*{_TLD}|"
    rf"[a-z][\w-]*(?:\.[a-z0-9-]+)*\.(?:internal|localdomain|lan)|"
    r"192\.168(?:\.\d{1,3}){2}|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}|"
    r"[a-z][a-z-]*-\d[\w-]*\.local|(?:\d{1,3}\.){3}\d{1,3}(?=:\d{2,5}\b)|ip-\d+-\d+-\d+-\d+|nid\d{5,6})(?![\w(/])",
    re.IGNORECASE,
)
"""`node17.cluster.example.org`, `ip-10-0-0-1`; a layer such as `layer1.0.conv` ends in no domain."""
_HEX: Final = "[0-9a-f]{1,4}"
_ADDRESS: Final = re.compile(
    rf"(?<![\w:.])(?:(?:{_HEX}:){{7}}{_HEX}|"
    rf"(?:fe[89ab][0-9a-f]|f[cd][0-9a-f]{{2}}|[23][0-9a-f]{{3}})(?::{_HEX}){{0,6}}::(?:{_HEX}(?::{_HEX})*)?|"
    r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2})(?:%\w+)?(?![\w:<(])",
    re.IGNORECASE,
)
"""Of IPv6, in use, and of a network card; scopes of C++ do not begin so."""
_HOST_NAMES: Final = re.compile(
    r"HOST|\w*_HOST|\w*HOSTNAME|SLURM\w*NODE(?:LIST|NAME)|SLURMD_NODENAME|NODELIST|MASTER_ADDR|COMPUTERNAME|"
    r"host_?name|nodename|node_?list|fqdn|computer_?name|submit_?host|master_addr",
)
"""Variables and keys that hold hosts. `node_name` is of a graph."""
_HOST_IN_URL: Final = re.compile(r"\b((?:tcp|ssh|sftp|smb|nfs|gpfs|nccl|ucx|rsync)://)[^\s/\"'<>]+")
_AT_HOST: Final = re.compile(r"(?<![\w.+-])[a-z_][a-z0-9_-]*@(?:[a-z][a-z-]*\d+\b(?!\.)|(?:\d{1,3}\.){3}\d{1,3}\b)")

_ROOTS: Final = (
    r"(?:export|storage|global|p|cluster|shared?|usr|system|run|dev|media|nas|hpc|arc|cfs|fs\w*|vol\w*)/"
    r"(?:home\d*|users?|scratch\d*|projects?|shm)|home\d*|scratch\d*|projects|users(?=/[a-z])|"
    "root|Users|u(?=/[a-z]\\w+/)|tmp|var|mnt|opt|srv|scratch|workspace|private|data|work|nfs|lustre|Volumes|gpfs\\d*|beegfs|weka|"
    r"ceph(?:fs)?|pfs\d*|kaggle|content/drive|net/(?:home|scratch|users|work|data)(?=/[a-z])|"
    "afs|cvmfs|fsx|efs|raid|nobackup|pscratch|gscratch|localscratch|local_scratch|storage|export|media|"
    "data\\d+|work\\d+|nfs[\\d_]\\w*|lustre[\\d_]\\w*|nobackup\\d+|mnt\\d+"
)
_IN_PATH: Final = r"(?:\\ |[^\s'\",;:()<>\\])"
_PATH: Final = re.compile(
    # Alone on its line, or in quotes: blanks belong to it.
    rf"^/(?:{_ROOTS})/[^\n:;,'\"()<>=]*$|"
    rf"(?<=')/(?:{_ROOTS})/[^'\n]*(?=')|(?<=\")/(?:{_ROOTS})/[^\"\n]*(?=\")|"
    # In a sentence: up to two blanks, where a separator or a file's ending follows.
    rf"(?:(?<![\w.)\]}}-])|(?<=\s-[A-Z])|(?<=\\[nrt]))/(?:{_ROOTS})(?:/{_IN_PATH}*)+"
    rf"(?:(?<!\.\w)(?<!\.\w\w)(?<!\.\w\w\w)(?<!\.\w\w\w\w)(?<!\.\w\w\w\w\w)(?: [\w.+-]+){{0,2}} [\w.+-]*"
    rf"(?:/{_IN_PATH}+|\.(?:onnx|pt|pth|py|json|yaml|yml|safetensors|bin|engine|plan|csv|log|txt|npz|sqlite)\b))?|"
    r"(?<!\w)(?:[A-Z]:|\\\\[\w.-]+)\\[^\s'\",;()<>]+(?: [\w.+-]+\\[^\s'\",;()<>]+)*",
    re.MULTILINE,
)
"""Absolute paths by their first folder: names such as /encoder/layer.0/MatMul are layers, not paths."""
_LEAST: Final = 4
"""Shorter strings (a host called `vm`) would be found by chance in the names of kernels."""
_PLAIN_LEAST: Final = 2 * _LEAST
"""Of the value of a variable whose name says nothing: `1` or `xterm` are no secrets."""


@functools.lru_cache(maxsize=10_000)
def names_a_secret(name: str) -> bool:
    """Whether what is called so is a secret: variables by a word in them, other names where they speak of one."""
    name = name.lstrip("-")
    if _VARIABLE.fullmatch(name):
        return bool(_OF_VARIABLE.search(name))
    if not _OF_VARIABLE.search(name):
        return False
    if _ALWAYS.search(name):
        return True
    *before, last = [word.lower() for word in _HUMPS.findall(name)] or [""]
    owner = before[-1] if before else ""
    return bool(
        (last == "token" and not _OF_TENSORS.fullmatch(owner) and "." not in name)
        or (last == "key" and _OF_KEYS.fullmatch(owner))
        or (last == "pass" and _OF_PASS.fullmatch(owner))
    )


def allowed_variable(name: str) -> bool:
    """Whether a variable's name says nothing of a secret."""
    return not _OF_VARIABLE.search(name)


def values(environment: Mapping[str, str], *more: str) -> list[str]:
    """What must not be found: the values of an environment, and `more` (host, user, home); longest first."""
    hidden = {
        value
        for name, value in environment.items()
        if len(value) >= _PLAIN_LEAST or (_OF_VARIABLE.search(name) and len(value) >= _LEAST)
    }
    hidden |= {text for text in more if len(text) >= _LEAST}
    return sorted((text for text in hidden if not _TRIVIAL.fullmatch(text)), key=len, reverse=True)


def redact(text: str, hidden: Iterable[str] = ()) -> str:
    """The text without these strings, and without what is a secret by its name, its form or its place."""
    for value in hidden:
        text = _without(text, value)
    for applies, change in _STEPS:
        if applies.search(text):
            text = change(text)
    return text


def redact_value(name: str, value: Any, redacted: Callable[[str], str]) -> Any:
    """What a document says under a name: nothing where that names a secret, else the value redacted throughout."""
    if isinstance(value, str):
        hidden = not _TRIVIAL.fullmatch(value) and (names_a_secret(name) or _HOST_NAMES.fullmatch(name))
        return REDACTED if hidden else redacted(value)
    if isinstance(value, Mapping):
        under = name if names_a_secret(name) else ""
        return {redacted(str(key)): redact_value(under or str(key), part, redacted) for key, part in value.items()}
    if isinstance(value, list):
        return _redact_list(name, value, redacted)
    if isinstance(value, int | float) and not isinstance(value, bool) and _ALWAYS.search(name):
        return value if _TRIVIAL.fullmatch(str(value)) else REDACTED
    return value


def survivors(content: bytes, hidden: Iterable[str]) -> list[str]:
    """What is a secret beyond doubt and still in these bytes, told by its kind."""
    text = content.decode("latin-1")
    kinds = {"a token": _BY_FORM, "a key": _PEM, "a password in a URL": _IN_URL}
    seen = [kind for kind, pattern in kinds.items() if pattern.search(text)]
    # Short ones are found by chance in binary data.
    values = (value for value in hidden if len(value) >= _PLAIN_LEAST)
    return [*seen, *(["a value of the environment"] if any(value.encode() in content for value in values) else [])]


def _redact_list(name: str, items: Sequence[Any], redacted: Callable[[str], str]) -> list[Any]:
    """A list; of a command line the argument behind a flag that wants a secret goes too."""
    return [
        item
        if isinstance(item, int | float)  # samples, by the thousand
        else REDACTED
        if isinstance(item, str) and _wants_secret(before, item)
        else redact_value(name, item, redacted)
        for before, item in zip(["", *items], items, strict=False)
    ]


def _wants_secret(flag: Any, value: str) -> bool:
    is_flag = isinstance(flag, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", flag)
    return bool(is_flag) and _hides_next(flag, value) and not _harmless(flag, value)


def _without(text: str, value: str) -> str:
    if value not in text:
        return text
    if len(value) >= _PLAIN_LEAST:
        return text.replace(value, REDACTED)
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", REDACTED, text)


def _values_out(text: str, names: re.Pattern[str], is_hidden: Callable[[str, str], bool]) -> str:
    """The text without the value behind each name that hides one; what stays may hold a name and a value itself."""
    parts, place = [], 0
    for match in names.finditer(text):
        if match.start() < place or not is_hidden(match["name"], text[match.end() : match.end() + 4].strip(_QUOTES)):
            continue
        value = _VALUE.match(text, match.end())
        bare = value[0].strip(_QUOTES) if value else ""
        if value and bare and not _harmless(match["name"], bare):
            parts += [text[place : match.end()], value[0].replace(bare, REDACTED)]
            place = value.end()
    return "".join([*parts, text[place:]])


def _hides_assigned(name: str, first: str) -> bool:
    hidden = _is_secret_flag(name) if name.startswith("-") else names_a_secret(name)
    return hidden or bool(_HOST_NAMES.fullmatch(name) and (first[:1].isalpha() or re.match(r"\d+\.", first)))


def _hides_next(name: str, first: str) -> bool:
    return not first.startswith("-") and _is_secret_flag(name)


def _is_secret_flag(name: str) -> bool:
    bare = name.lstrip("-")
    return bare in _FLAGS or names_a_secret(bare.replace("-", "_"))


def _harmless(name: str, value: str) -> bool:
    # Ports, and folders of mkdir, are what -p is given elsewhere.
    elsewhere = name == "-p" and re.fullmatch(r"\d{1,5}|/.*|process-tree", value)
    return bool(elsewhere or _TRIVIAL.fullmatch(value) or value.startswith(REDACTED))


def _of_basic(match: re.Match[str]) -> str:
    """`Basic` is a word too: what follows is one only where it says `user:password`."""
    try:
        said = base64.b64decode(match[2] + "=" * (-len(match[2]) % 4))
    except (binascii.Error, ValueError):
        return match[0]
    return f"{match[1]}{REDACTED}" if b":" in said and said.isascii() else match[0]


def _hint(words: str) -> re.Pattern[str]:
    """What a pattern needs to be in the text: looked for first, since most texts are names of kernels."""
    return re.compile(words, re.IGNORECASE)


_STEPS: Final[tuple[tuple[re.Pattern[str], Callable[[str], str]], ...]] = (
    (_hint("-----BEGIN"), lambda text: _PEM.sub(REDACTED, text)),
    (_hint("://"), lambda text: _IN_URL.sub(lambda m: f"{m[1]}{REDACTED}@", text)),
    (_hint("://"), lambda text: _HOST_IN_URL.sub(rf"\1{REDACTED}", text)),
    (_hint("bearer"), lambda text: _BEARER.sub(rf"\1{REDACTED}", text)),
    (_hint("basic"), lambda text: _BASIC.sub(_of_basic, text)),
    (_hint("pass|digest"), lambda text: _TO_THE_END.sub(rf"\1{REDACTED}", text)),
    (_BY_FORM, lambda text: _BY_FORM.sub(REDACTED, text)),
    (
        _hint(f"{_SECRET_WORDS}|host|node|addr|fqdn|computer|-p|-pw"),
        lambda text: _values_out(text, _ASSIGNED, _hides_assigned),
    ),
    (_hint(" "), lambda text: _values_out(text, _FLAG, _hides_next)),
    (_hint("pass|pwd|token|secret|key"), lambda text: _SAID.sub(rf"\1{REDACTED}", text)),
    (_hint("wandb"), lambda text: _LOGIN.sub(rf"\1{REDACTED}", text)),
    (_hint("-u"), lambda text: _USER_FLAG.sub(rf"\1\2{REDACTED}", text)),
    (_hint(r"[?&]|SharedAccess|webhooks|slack"), lambda text: _SIGNED.sub(rf"\1{REDACTED}", text)),
    (
        _hint("login|sshpass"),
        lambda text: _GLUED.sub(rf"\1{REDACTED}", _NETRC.sub(rf"\1{REDACTED}\2{REDACTED}", text)),
    ),
    (_hint("@|%40"), lambda text: _AT_HOST.sub(REDACTED, _MAIL.sub(REDACTED, text))),
    (_hint(r"[/\\]"), lambda text: _PATH.sub(REDACTED, text)),
    (_hint(r"\.|ip-|nid"), lambda text: _HOST.sub(REDACTED, text)),
    (_hint(":[0-9a-f]{0,4}:"), lambda text: _ADDRESS.sub(REDACTED, text)),
)
"""In this order: what is behind `Bearer` must be gone before `Authorization:` takes one word."""
