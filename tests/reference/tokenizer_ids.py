"""Writes tests/reference/tokenizer/: small tokenizers that Hugging Face's `tokenizers` learned, and the ids that they give.

NAME.json are byte-level BPE tokenizers of 768 tokens with the patterns of GPT-2, Llama 3 (whose pieces that are tokens ignore the merges)
and phi-4 (tiktoken's cl100k); KIND.txt are texts: English (a part of data/text/tinyshakespeare.txt), code (a part of this tree), digits
and white space, and scripts of the world with emoji and combining marks, both drawn. tokenizer_ids.safetensors has the ids, NAME.KIND.
Needs `tokenizers`. With --check nothing is written: the ids are computed again from the files on disk and compared.
"""

import pathlib
import random
import sys
import unicodedata

import numpy
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import record

FOLDER = record.FOLDER / "tokenizer"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>"]
KINDS = ("english", "code", "digits", "world")


def split(pattern, behavior, invert):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


NAMES = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), False),
    "llama3": (split(LLAMA3, "isolated", False), True),
    "phi4": (split(CL100K, "removed", True), False),
}


def digits(draw):
    spaces = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "   \n", " \t ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\x0b", "\x1c", "\0"]
    marks = ["+", "-", "e", ",", ".", ":", "$", "'s", "'S", "'ll", "'LL", "n't", "\u0967\u0968", "\u00b2\u00bd", "\u2167", "\u4e00"]
    parts = (lambda: str(draw.randrange(10 ** draw.randrange(1, 12))), lambda: draw.choice(spaces) * draw.randrange(1, 5),
             lambda: f"{draw.random():.{draw.randrange(1, 15)}g}", lambda: draw.choice(marks))
    return "".join(draw.choice(parts)() for _ in range(700))


def world(draw):
    scripts = [(0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
               (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x300, 0x36F), (0x1F300, 0x1FAFF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF)]
    fixed = ["e\u0301", "n\u0303o", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\u2764\ufe0f", "na\u00efve", "\u00fcber", "l'\u00e9t\u00e9",
             "don't", "'\u017f", "\u212a", "\ufeff"]
    text = ""
    for _ in range(250):
        low, high = draw.choice(scripts)
        word = [chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 7))]
        # Characters that a newer Unicode assigned would be split by the version of a library.
        word = [c for c in word if unicodedata.category(c) != "Cn"] if draw.random() < 0.85 else [draw.choice(fixed)]
        text += "".join(word) + draw.choice([" ", " ", " ", "", "\n", "  ", "\u3000", "\u060c", "\u3002"])
    return text


def texts():
    draw = random.Random(60)
    root = record.FOLDER.parent.parent
    english = (root / "data/text/tinyshakespeare.txt").read_text()[10000:13000]
    code = (root / "core/include/tenon/options.hpp").read_text()[2000:5000]
    return dict(zip(KINDS, (english, code, digits(draw), world(draw))))


def learn(name, corpus, tokens=768):
    splitter, ignore_merges = NAMES[name]
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer, made.decoder = splitter, decoders.ByteLevel()
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=tokens, special_tokens=SPECIAL, show_progress=False,
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def main():
    if "--check" not in sys.argv:
        FOLDER.mkdir(exist_ok=True)
        found = texts()
        for kind, text in found.items():
            (FOLDER / f"{kind}.txt").write_bytes(text.encode())
        root = record.FOLDER.parent.parent
        corpus = [*found.values(), (root / "data/text/tinyshakespeare.txt").read_text()[:60000]]
        for name in NAMES:
            learn(name, corpus).save(str(FOLDER / f"{name}.json"), pretty=False)
    tensors = {}
    for name in NAMES:
        tokenizer = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
        tokenizer.encode_special_tokens = True
        for kind in KINDS:
            text = (FOLDER / f"{kind}.txt").read_bytes().decode()
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == text
            tensors[f"{name}.{kind}"] = numpy.array(ids, dtype=numpy.int64)
        text = "A text of <|endoftext|> and <|im_start|>: a text."
        tensors[f"{name}.special"] = numpy.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=numpy.int64)
    record.finish("tokenizer_ids", tensors, {"tokenizers": tokenizers.__version__, "unicode of the script": unicodedata.unidata_version})


if __name__ == "__main__":
    main()
