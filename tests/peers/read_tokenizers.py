"""Ids of `tenon tokenize encode` and of Hugging Face's `tokenizers`, with files that each of them learned and the other one reads.

TENON_PEER_MEGABYTES of each of four kinds of text, 1 unless given; every character of Unicode is a fifth one.
"""

import json
import os
import pathlib
import random
import subprocess
import sys

import numpy

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/reference"))
import tokenizer_ids  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

DOCUMENT = 8192  # characters


def files(*patterns):
    found = []
    for pattern in patterns:
        found += sorted(ROOT.glob(pattern))
    return found


def corpora(size):
    draw = random.Random(61)
    kinds = {
        "English": [path.read_text() for path in files("data/text/*.txt", "docs/**/*.md", "plugins/*/*/*.md")],
        "code": [path.read_text() for path in files("core/**/*.?pp", "services/**/*.?pp", "cli/**/*.cpp", "plugins/**/*.cpp", "kernels/**/*.?pp",
                                                    "tests/**/*.cpp", "sdk/**/*.?pp")],
        "digits and white space": (tokenizer_ids.digits(draw) for _ in iter(int, 1)),
        "scripts, emoji, marks": (tokenizer_ids.world(draw) for _ in iter(int, 1)),
    }
    for kind, texts in kinds.items():
        documents, bytes_ = [], 0
        for text in texts:
            for at in range(0, len(text), DOCUMENT):
                documents.append(text[at:at + DOCUMENT])
                bytes_ += len(documents[-1].encode())
            if bytes_ >= size:
                break
        yield kind, documents
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    yield "every character", ["".join(f"a{c}1 '{c} {c}" for c in every[at:at + 500]) for at in range(0, len(every), 500)]


def ours(tenon, folder, tokenizer, documents):
    lines, out = folder / "documents.jsonl", folder / "tokens.bin"
    lines.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    out.unlink(missing_ok=True)
    subprocess.run([tenon, "tokenize", "encode", "--tokenizer", tokenizer, "--jsonl", "text", "--out", out, lines], check=True,
                   stdout=subprocess.DEVNULL)
    return numpy.fromfile(out, numpy.uint16, offset=1024).astype(numpy.int64)


def theirs(path, documents):
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    end = tokenizer.token_to_id("<|endoftext|>")
    return numpy.array([i for one in tokenizer.encode_batch_fast(documents, add_special_tokens=False) for i in [*one.ids, end]], numpy.int64)


def main():
    tenon, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    size = int(float(os.environ.get("TENON_PEER_MEGABYTES", "1")) * 1e6)
    texts = list(corpora(size))
    tokenizers = {}
    for name in tokenizer_ids.NAMES:
        path = folder / f"hf_{name}.json"
        # Four parts of each kind are enough to learn from.
        tokenizer_ids.learn(name, [document for _, documents in texts[:4] for document in documents[:60]], 4096).save(str(path), pretty=False)
        tokenizers[f"tokenizers, {name}"] = path
    plain = folder / "plain.txt"
    plain.write_text("".join(document for _, documents in texts[:4] for document in documents[:60]))
    for pattern in ("gpt2", "llama3"):
        path = folder / f"tenon_{pattern}.json"
        subprocess.run([tenon, "tokenize", "train", "--vocabulary", "4096", "--special", "<|endoftext|>", "--pattern", pattern, "--out", path,
                        plain], check=True, stdout=subprocess.DEVNULL)
        tokenizers[f"tenon, {pattern}"] = path
    print("## tokenizers\n\nIds of `tenon tokenize encode` and of `Tokenizer.encode_batch_fast`, which must be equal, with tokenizers of 4,096 "
          "tokens.\n\n| learned by, pattern | text | MB | ids | differences |\n|---|---|---|---|---|")
    failures = 0
    for name, path in tokenizers.items():
        # Every character is tried with each pattern once.
        for kind, documents in texts if name.startswith("tokenizers") else texts[:4]:
            found, expected = ours(tenon, folder, path, documents), theirs(path, documents)
            same = found.shape == expected.shape and (found == expected).all()
            failures += not same
            megabytes = sum(len(document.encode()) for document in documents) / 1e6
            differences = "0" if same else "**yes**" if found.shape != expected.shape else f"**{int((found != expected).sum())}**"
            print(f"| {name} | {kind} | {megabytes:.1f} | {len(expected)} | {differences} |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
