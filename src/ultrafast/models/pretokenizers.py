"""How each byte-level vocabulary cuts text into words before merging, by the name in ``tokenizer.ggml.pre``.

The names are llama.cpp's. The patterns are those of the models' own ``tokenizer.json``, so that ids equal Hugging
Face's; where there is no such file (``default``), they follow what llama.cpp does for the name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# DeepSeek's letters with case. Escaped, because normalising this text (NFC) would change three range ends.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TRAILING_SPACE = r"(?<!\s)\s+$"  # \s+$ with the same matches, but linear on long runs of spaces


@dataclass(frozen=True, slots=True)
class PreTokenizerSpec:
    """What one ``tokenizer.ggml.pre`` name means."""

    steps: tuple[str | PreTokenizer, ...]  # patterns whose matches become words of their own, or library steps
    gpt2_words: bool = False  # then cut by GPT-2's pattern
    ignore_merges: bool = False  # a word that is a token is that token, whatever the merges say
    add_bos: bool = False  # when the file does not say
    nfc: bool = False  # the model was trained on composed characters

    def build(self) -> PreTokenizer:
        steps = [Split(Regex(step), "isolated") if isinstance(step, str) else step for step in self.steps]
        return Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=self.gpt2_words)])


_DIGITS = Digits(individual_digits=True)
_FAMILIES = {
    "gpt-2 gpt2 phi-2 mellum trillion exaone4 gigachat a.x-4.0 granite-docling": PreTokenizerSpec((), gpt2_words=True),
    "olmo": PreTokenizerSpec((), gpt2_words=True, nfc=True),
    "smollm starcoder refact codeshell exaone minerva-7b mellum2": PreTokenizerSpec((_DIGITS,), gpt2_words=True),
    "command-r": PreTokenizerSpec((_DIGITS,), gpt2_words=True, nfc=True),
    "default": PreTokenizerSpec((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": PreTokenizerSpec(
        (_LLAMA3,), ignore_merges=True, add_bos=True
    ),
    "dbrx smaug-bpe": PreTokenizerSpec((_LLAMA3,)),
    "qwen2 megrez": PreTokenizerSpec((_QWEN2,), nfc=True),
    "deepseek-r1-qwen stablelm2 kormo": PreTokenizerSpec((_QWEN2,)),
    "tekken": PreTokenizerSpec((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o llama4 kanana2": PreTokenizerSpec((_GPT4O,)),
    "deepseek-llm": PreTokenizerSpec(
        (r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", _TRAILING_SPACE, _CJK, _DIGITS)
    ),
    "deepseek-coder": PreTokenizerSpec((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGITS)),
    "deepseek-v3": PreTokenizerSpec((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK_V3)),
}
PRE_TOKENIZERS = {name: spec for names, spec in _FAMILIES.items() for name in names.split()}
