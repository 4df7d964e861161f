"""The data set synthetic_ctr written a second time, in NumPy from its description: planted_ctr.safetensors.

CASE.dense, .ids, .labels, .planted: samples 0 ... 31 and one far away of the train stream (data_seed 7), in float64; CASE.val_*
those of the validation stream. Philox4x32-10 and the derivation of keys are written out here, so equal ids are equal bits.

With --learn [SAMPLES] nothing is recorded: PyTorch fits a logistic regression and a DLRM of width 16 to the default data, in one
pass, and prints their AUC on 100,000 validation samples beside that of the true logit. NAME=VALUE changes a default of the data, or lr
or spread (of the initial rows) of the DLRM, whose rule is Adagrad.
"""

import sys
import time

import numpy

import record

DEFAULTS = dict(rows=[1000] * 26, dense=13, bag=1, pairs=4, exponent=1.5, bias=-1.0, strength_dense=0.5, strength_rows=1.1,
                strength_pairs=0.8)
CASES = {
    "default": {},
    "bags": dict(rows=[7, 1, 100000, 2147483647, 33], dense=2, bag=3),
    "unit_exponent": dict(rows=[10**6, 50], dense=1, pairs=2, exponent=1.0, bias=0.5, strength_pairs=3.0),
    "one_table": dict(rows=[100], dense=3, exponent=0.0),
}
U32, U64 = numpy.uint32, numpy.uint64


def philox(counter, key):
    """Salmon et al., SC 2011: counter is four arrays of 32-bit words held in uint64, key two words."""
    c, k = [numpy.asarray(x, U64) for x in counter], [int(x) for x in key]
    mask = U64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        c = [(b >> U64(32)) ^ c[1] ^ U64(k[0]), b & mask, (a >> U64(32)) ^ c[3] ^ U64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def key_of(seed, purpose):
    text, size = purpose.encode(), len(purpose)
    state = [size & 0xFFFFFFFF, size >> 32, 0x74656E6F, 0x6E6B6579]
    for begin in range(0, max(size, 1), 16):
        block = text[begin:begin + 16].ljust(16, b"\0")
        state = [s ^ int.from_bytes(block[4 * i:4 * i + 4], "little") for i, s in enumerate(state)]
        state = [int(x) for x in philox(state, (seed & 0xFFFFFFFF, seed >> 32))]
    return state[0], state[1]


def words(key, step, index):
    index = numpy.asarray(index, U64)
    low, high = U64(step & 0xFFFFFFFF) + 0 * index, U64(step >> 32) + 0 * index
    return philox((index & U64(0xFFFFFFFF), index >> U64(32), low, high), key)


def joined(high, low):
    return (high << U64(32)) | low


def uniform(key, step, index):
    w = words(key, step, index)
    return (joined(w[0], w[1]) >> U64(11)).astype(float) * 2.0**-53


def below(key, step, index, bound):
    w = words(key, step, index)
    wide = [(int(joined(a, b)) << 64) | int(joined(c, d)) for a, b, c, d in zip(*[numpy.atleast_1d(x) for x in w])]
    return numpy.array([(x * bound) >> 128 for x in wide])


def bell(key, step, index):
    return numpy.sqrt(0.75) * ((sum(words(key, step, index)) + U64(2)).astype(float) / 2**31 - 4)


def centred(word):
    return numpy.sqrt(3.0) * ((word.astype(float) + 0.5) / 2**31 - 1)


class Planted:
    def __init__(self, seed, **changes):
        self.options = dict(DEFAULTS, **changes)
        self.seed, self.key = seed, key_of(seed, "ctr.model")
        self.rows, self.bag = self.options["rows"], self.options["bag"]
        weights = numpy.array([centred(words(self.key, 2**32, k)[0]) for k in range(self.options["dense"])])
        self.weights = weights * self.options["strength_dense"] / numpy.sqrt((weights**2).sum())
        self.multipliers, self.offsets = [], []
        for t, rows in enumerate(self.rows):
            multiplier = int(rows * 0.61803398874989485) + 1
            while numpy.gcd(multiplier, rows) != 1:
                multiplier += 1
            self.multipliers.append(multiplier)
            self.offsets.append(int(below(self.key, 0, t, rows)[0]))

    def draw_rows(self, t, u):
        rows, a = self.rows[t], self.options["exponent"]
        place = (rows + 1.0)**u if a == 1 else (1 + u * ((rows + 1.0)**(1 - a) - 1))**(1 / (1 - a))
        rank = numpy.clip(place.astype(numpy.int64) - 1, 0, rows - 1)
        return (rank * self.multipliers[t] + self.offsets[t]) % rows

    def samples(self, stream, index):
        """dense [n, D], ids [n, T, L], logit [n], labels [n]."""
        index = numpy.asarray(index, U64)
        key, tables, bag, options = key_of(self.seed, "ctr." + stream), len(self.rows), self.bag, self.options
        dense = numpy.stack([bell(key, 1 + k, index) for k in range(options["dense"])], 1).astype(numpy.float32)
        ids = numpy.empty((len(index), tables, bag), numpy.int64)
        used = min(options["pairs"], tables // 2)
        effects, pairs, scale = 0.0, 0.0, numpy.sqrt(2 / bag) if bag > 1 else 1.0
        for t in range(tables):
            length = below(key, 2**32 + t, index, bag + 1) if bag > 1 else 1
            traits = numpy.zeros((3, len(index)))
            for i in range(bag):
                drawn = self.draw_rows(t, uniform(key, 2**33 + t * bag + i, index))
                ids[:, t, i] = numpy.where(i < length, drawn, -1)
                traits += numpy.stack([centred(w) for w in words(self.key, 1 + t, drawn)[:3]]) * (i < length)
            effects = effects + scale * traits[0]
            if t % 2 == 1 and t < 2 * used:
                pairs = pairs + scale**2 * (traits[1:] * before[1:]).sum(0)
            before = traits
        logit = options["bias"] + dense.astype(float) @ self.weights + options["strength_rows"] * effects / numpy.sqrt(tables)
        if used > 0:
            logit = logit + options["strength_pairs"] * pairs / numpy.sqrt(2 * used)
        labels = (uniform(key, 0, index) < 1 / (1 + numpy.exp(-logit))).astype(numpy.int64)
        return dense, ids, logit, labels


def auc(score, labels):
    order = numpy.argsort(score, kind="stable")
    ranks = numpy.empty(len(score))
    ranks[order] = numpy.arange(1, len(score) + 1)
    positive = labels.sum()
    return (ranks[labels == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(labels) - positive))


def learn(samples, changes, batch=2048, width=16, lr=0.02, spread=0.03):
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Planted(1, **changes)
    rows = model.rows
    offsets = numpy.concatenate([[0], numpy.cumsum(rows)[:-1]])
    val = model.samples("val", numpy.arange(100_000))
    print(f"share of clicks {val[3].mean():.3f}, AUC of the true logit {auc(val[2], val[3]):.4f}", flush=True)

    class Dlrm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(sum(rows), width)
            torch.nn.init.uniform_(self.table.weight, -spread, spread)
            self.bottom = torch.nn.Sequential(torch.nn.Linear(model.options["dense"], 64), torch.nn.ReLU(),
                                              torch.nn.Linear(64, width), torch.nn.ReLU())
            features = len(rows) + 1
            # Row-major places of the products of two different vectors.
            self.lower = torch.tril(torch.ones(features, features), -1).flatten().nonzero()[:, 0]
            self.top = torch.nn.Sequential(torch.nn.Linear(width + len(self.lower), 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

        def forward(self, dense, ids):
            z0 = self.bottom(dense)
            z = torch.cat([z0[:, None], self.table(ids)], 1)
            dots = (z @ z.transpose(1, 2)).flatten(1).index_select(1, self.lower)
            return self.top(torch.cat([z0, dots], 1))[:, 0]

    class Logistic(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.dense = torch.nn.Embedding(sum(rows), 1), torch.nn.Linear(model.options["dense"], 1)
            torch.nn.init.zeros_(self.table.weight)

        def forward(self, dense, ids):
            return self.table(ids).sum((1, 2)) + self.dense(dense)[:, 0]

    as_tensors = lambda s: (torch.from_numpy(s[0]), torch.from_numpy(s[1][:, :, 0] + offsets), torch.from_numpy(s[3]).float())
    v = as_tensors(val)
    nets = {"logistic": Logistic(), "dlrm": Dlrm()}
    optimizers = {name: torch.optim.Adagrad(net.parameters(), lr=lr if name == "dlrm" else 0.05) for name, net in nets.items()}
    seconds, done, next_report = {name: 0.0 for name in nets}, 0, samples // 8
    while done < samples:
        chunk = as_tensors(model.samples("train", numpy.arange(done, done + 8 * batch)))
        for begin in range(0, 8 * batch, batch):
            part = [x[begin:begin + batch] for x in chunk]
            for name, net in nets.items():
                start = time.perf_counter()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(net(*part[:2]), part[2])
                optimizers[name].zero_grad()
                loss.backward()
                optimizers[name].step()
                seconds[name] += time.perf_counter() - start
        done += 8 * batch
        if done >= next_report:
            next_report += samples // 8
            with torch.no_grad():
                scores = {name: auc(net(*v[:2]).numpy(), val[3]) for name, net in nets.items()}
            print(done, {name: f"{score:.4f} after {seconds[name]:.0f} s" for name, score in scores.items()}, flush=True)


def main():
    found = {}
    for name, changes in CASES.items():
        model = Planted(7, **changes)
        for stream, prefix in [("train", ""), ("val", "val_")]:
            index = list(range(32)) + [10**14 + 5]
            dense, ids, logit, labels = model.samples(stream, index)
            found[f"{name}.{prefix}dense"], found[f"{name}.{prefix}planted"] = dense.astype(float), logit
            found[f"{name}.{prefix}ids"], found[f"{name}.{prefix}labels"] = ids, labels
    record.finish("planted_ctr", found, {"cases": CASES})


if __name__ == "__main__":
    if "--learn" in sys.argv:
        rest = sys.argv[sys.argv.index("--learn") + 1:]
        sets = dict(text.split("=") for text in rest if "=" in text)
        training = {name: float(sets.pop(name)) for name in ("lr", "spread") if name in sets}
        wanted = {name: [int(value)] * 26 if name == "rows" else int(value) if name == "pairs" else float(value) for name, value in sets.items()}
        learn(int(float(rest[0])) if rest and "=" not in rest[0] else 2_000_000, wanted, **training)
    else:
        main()
