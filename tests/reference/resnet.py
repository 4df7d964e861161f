"""Records a tiny ResNet-18 for small images: logits, loss, gradients, three steps of SGD with momentum, and the running
statistics of its batch norms, in float64.

Written from He et al. 2016 with torchvision's names; the stem is 3 x 3 without pool, as is usual for CIFAR. Weights and
images are float32 values. `parameters_at_width_64` counts the network of that width.
"""

import numpy
import torch
import torch.nn.functional as F
from torch import nn

import record
from gpt_neo import distance

WIDTH, BATCH, STEPS, CLASSES = 2, 4, 3, 10
SGD = {"lr": 0.02, "momentum": 0.9}


class Block(nn.Module):
    def __init__(self, before, features, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, features, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, features, 1, stride, bias=False), nn.BatchNorm2d(features))

    def forward(self, x):
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(branch + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        before = width
        for stage in range(4):
            features = width << stage
            first = Block(before, features, 1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, Block(features, features, 1)))
            before = features
        self.fc = nn.Linear(before, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def count(model):
    return sum(p.numel() for p in model.parameters())


def state(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()
            if not name.endswith("num_batches_tracked")}


def initial_weights(rng):
    """Wide enough that no batch norm divides by a tiny deviation, and gains and biases away from 1 and 0."""
    weights = {}
    for name, p in ResNet18(WIDTH).named_parameters():
        centre, sigma = (1.0, 0.2) if p.ndim == 1 and name.endswith("weight") else (0.0, 0.3)
        if p.ndim == 4:
            sigma = (2 / p[0].numel()) ** 0.5
        weights[name] = torch.from_numpy(rng.normal(centre, sigma, tuple(p.shape)).astype(numpy.float32))
    return weights


def train(weights, images, labels, dtype):
    model = ResNet18(WIDTH).to(dtype)
    model.load_state_dict(weights, strict=False)
    optimizer, losses, out = torch.optim.SGD(model.parameters(), foreach=False, **SGD), [], {}
    for t in range(STEPS):
        optimizer.zero_grad()
        logits = model(images[t].to(dtype))
        loss = F.cross_entropy(logits, labels[t])
        loss.backward()
        if t == 0:
            out["logits"] = logits.detach().clone()
            out.update({f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()})
        losses.append(loss.detach())
        optimizer.step()
    out["step_loss"] = torch.stack(losses)
    out.update({f"final.{n}": v for n, v in state(model).items()})
    model.eval()
    out["eval_logits"] = model(images[0].to(dtype)).detach()
    return out


def main():
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(18)
    weights = initial_weights(rng)
    images = torch.from_numpy(rng.normal(0, 1, (STEPS, BATCH, 3, 8, 8)).astype(numpy.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, (STEPS, BATCH)))
    f64, f32 = (train(weights, images, labels, dtype) for dtype in (torch.float64, torch.float32))
    tensors = {"images": images, "labels": labels, **{f"init.{n}": w for n, w in weights.items()},
               **{f"f64.{n}": v for n, v in f64.items()}}
    record.finish("resnet", tensors, {
        "model": {"depth": 18, "width": WIDTH, "classes": CLASSES, "stem": "3x3, stride 1, no pool",
                  "batch_norm": {"eps": 1e-5, "momentum": 0.1}},
        "training": {"steps": STEPS, "batch": BATCH, **SGD, "loss": "mean cross-entropy of the batch"},
        "parameters": count(ResNet18(WIDTH)), "parameters_at_width_64": count(ResNet18(64)),
        "step_loss": f64["step_loss"].tolist(),
        "error_of_float32": distance(f32, f64),
    })


if __name__ == "__main__":
    main()
