"""Records attention with grouped heads, windows, documents and keys before the first query, in float64.

PyTorch's scaled_dot_product_attention with enable_gqa groups the heads; the mask is built here from the definition: the
query t is at the place p = keys - time + t, and sees the keys of its own document at p - window + 1 ... p.
"""

import math

import torch
import torch.nn.functional as F

import record
from layers import Book

CASES = {
    # name: heads, kv_heads, width of a head, time, keys, window, lengths of documents, hidden keys, whether scaled
    "grouped": (4, 2, 4, 7, 7, 0, None, None, True),
    "grouped_unscaled": (6, 2, 3, 7, 7, 0, None, None, False),
    "one_key_head": (4, 1, 4, 7, 7, 0, None, None, True),
    "grouped_window": (6, 3, 4, 9, 9, 3, None, None, True),
    "documents": (2, 2, 4, 9, 9, 0, (4, 1, 4), None, True),
    "documents_window": (2, 2, 4, 12, 12, 3, (2, 7, 3), None, True),
    "documents_of_one_token": (2, 2, 4, 6, 6, 0, (1, 1, 1, 1, 1, 1), None, True),
    "documents_grouped": (4, 2, 4, 11, 11, 4, (6, 1, 4), None, True),
    "keys": (2, 2, 4, 5, 9, 0, None, None, True),
    "keys_window": (2, 2, 4, 5, 9, 3, None, None, True),
    "keys_one_query": (4, 2, 4, 1, 9, 0, None, None, True),
    "keys_documents": (2, 2, 4, 6, 11, 0, (4, 5, 2), None, True),
    "keys_all": (4, 2, 6, 6, 13, 4, (2, 7, 4), None, True),
    "keys_padding": (4, 2, 4, 7, 11, 0, None, (0, 1, 5), True),
}


def write(book):
    for case, (heads, kv_heads, d, time, keys, window, lengths, hidden, scaled) in CASES.items():
        batch, scale = 2, 1 / math.sqrt(d) if scaled else 1.0
        fixed = {}
        place, key = torch.arange(keys - time, keys)[:, None], torch.arange(keys)[None, :]
        seen = key <= place if window == 0 else (key <= place) & (key > place - window)
        seen = seen.expand(batch, time, keys).clone()
        if lengths is not None:  # the second sample has them in the other order
            rows = [torch.repeat_interleave(3 * torch.arange(len(lengths)) - 1, torch.tensor(row))
                    for row in (lengths, lengths[::-1])]
            fixed["documents"] = torch.stack(rows)
            seen &= fixed["documents"][:, keys - time:, None] == fixed["documents"][:, None, :]
        if hidden is not None:
            fixed["mask"] = torch.ones(batch, keys, dtype=torch.int64)
            fixed["mask"][:, list(hidden)] = 0
            seen &= fixed["mask"][:, None, :] == 1

        def attend(q, k, v, **_):
            q, k, v = (a.unflatten(-1, (-1, d)).transpose(1, 2) for a in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], scale=scale, enable_gqa=True)
            return y.transpose(1, 2).flatten(2)

        options = {"heads": heads, "kv_heads": kv_heads, "window": window, "scale": scale}
        book.differentiate(case, options, attend,
                           {"q": book.normal(batch, time, heads * d), "k": book.normal(batch, keys, kv_heads * d),
                            "v": book.normal(batch, keys, kv_heads * d)}, fixed)


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    write(book)
    write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("attention", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
