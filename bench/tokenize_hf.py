"""Seconds that Hugging Face's `tokenizers` needs on one thread for the documents of a file, separated by zero bytes: to encode them with
a tokenizer.json, in one call and without positions, which is its fastest way, and to learn 4,096 tokens. Then the number of ids."""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

path, texts, pattern = sys.argv[1:]
documents = open(texts, "rb").read().decode("utf-8").split("\0")[:-1]
tokenizer = Tokenizer.from_file(path)
tokenizer.encode_special_tokens = True
begin = time.perf_counter()
encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
encode_seconds = time.perf_counter() - begin
ids = sum(len(one.ids) for one in encoded)
del encoded
learned = Tokenizer(models.BPE())
learned.pre_tokenizer = tokenizer.pre_tokenizer
trainer = trainers.BpeTrainer(vocab_size=4096, special_tokens=["<|endoftext|>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
begin = time.perf_counter()
learned.train_from_iterator(documents, trainer)
print(encode_seconds, time.perf_counter() - begin, ids)
