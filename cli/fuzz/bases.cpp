// Widths and sizes are odd where the model permits, since remainders of blocks are where kernels err.
#include "fuzz/bases.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

namespace tenon::fuzz {
namespace {

constexpr const char* kSums = "sums.jsonl";

/// Data of several bases; that of MNIST goes on with a batch.
constexpr const char* kText = R"(
[data]
type = "text"
context = 16
batch = 2
)";
constexpr const char* kMnist = R"(
[data]
type = "mnist"
scale = "standard"
)";
constexpr const char* kAdult = R"(
[data]
type = "adult"
buckets = 8
batch = 16
)";
constexpr const char* kDarcy = R"(
[data]
type = "npy"
inputs = ["x=data/darcy/darcy_train_16_x.npy"]
targets = ["y=data/darcy/darcy_train_16_y.npy"]
types = ["x=f32"]
shapes = ["x=1x16x16", "y=1x16x16"]
batch = 2
)";

struct Text {
  const char* name;
  bool has_rows;
  const char *data, *rest;  ///< TOML
};

constexpr Text kBases[] = {
    {"gpt_neo", false, kText, R"(
[model]
type = "gpt_neo"
layers = 2
width = 12
heads = 3
)"},
    {"decoder", false, kText, R"(
[model]
type = "decoder"
pattern = "*-"
width = 20
heads = 5
kv_heads = 1
hidden = 24
)"},
    {"hybrid", false, kText, R"(
[model]
type = "decoder"
pattern = "M*-"
width = 20
position = "none"
heads = 5
kv_heads = 1
hidden = 24
ffn = "squared_relu"
mamba_heads = 6
mamba_head_width = 5
mamba_state = 7
mamba_chunk = 6
)"},
    {"gpt_edited", false, "", R"(
[data]
type = "mixture"
sources = ["plays=data/text/tinyshakespeare.txt", "again=data/text/tinyshakespeare.txt"]
weights = ["2/3", "1/3"]
context = 16
batch = 2
[model]
type = "gpt_neo"
layers = 2
width = 12
heads = 3
[[model.override]]
match = "transformer.h.*.attn.attention.q_proj"
init_scale = 0.01
[[model.insert]]
after = "transformer.h.*.mlp.act"
name = "{}_drop"
type = "dropout"
p = 0.1
)"},
    {"layers", false, kMnist, R"(
batch = 4
[model]
type = "mlp"
[[model.layer]]
name = "conv"
type = "conv2d"
inputs = ["image"]
features = 3
kernel = [5]
bias = false
[[model.layer]]
name = "norm"
type = "batch_norm"
[[model.layer]]
name = "act"
type = "relu"
[[model.layer]]
name = "flat"
type = "flatten"
[[model.layer]]
name = "head"
type = "linear"
features = 10
[[model.layer]]
name = "loss"
type = "softmax_cross_entropy"
inputs = ["head", "label"]
)"},
    {"conversations", false, "", R"(
[data]
type = "conversations"
path = "{sums}"
val_fraction = 0.25
context = 16
batch = 2
[data.template.user]
after = "="
[data.template.assistant]
after = "\n"
[model]
type = "gpt_neo"
layers = 1
width = 12
heads = 3
)"},
    {"rollouts", false, "", R"(
[data]
type = "rollouts"
path = "{sums}"
context = 16
batch = 4
answers = 2
answer_tokens = 4
[data.reward]
type = "exact"
[data.conversations]
type = "conversations"
path = "{sums}"
context = 16
batch = 4
[data.conversations.template.user]
after = "="
[data.conversations.template.assistant]
after = "\n"
[model]
type = "gpt_neo"
layers = 1
width = 12
heads = 3
scale_logits = true
objective = "policy"
)"},
    {"mlp", false, kMnist, R"(
batch = 8
[model]
type = "mlp"
hidden = [17]
)"},
    {"lenet5", false, kMnist, R"(
batch = 4
[model]
type = "lenet5"
)"},
    {"resnet", false, kMnist, R"(
batch = 2
[model]
type = "resnet"
width = 4
)"},
    {"dlrm_adult", true, kAdult, R"(
[model]
type = "dlrm"
bottom = [8, 5]
top = [7, 1]
)"},
    {"dlrm_synthetic", true, "", R"(
[data]
type = "synthetic_ctr"
tables = 5
rows = [20]
dense = 3
bag = 3
pairs = 2
samples = 4000
val_samples = 400
batch = 16
[model]
type = "dlrm"
bottom = [8, 6]
top = [6, 1]
placement = "rows"
)"},
    {"dlrm_tables", true, kAdult, R"(
[model]
type = "dlrm"
bottom = [8, 5]
top = [7, 1]
placement = "tables"
)"},
    {"dlrm_mean", true, "", R"(
[data]
type = "synthetic_ctr"
tables = 3
rows = [40]
dense = 2
bag = 2
pairs = 1
samples = 4000
val_samples = 400
batch = 8
[model]
type = "dlrm"
bottom = [6, 4]
top = [5, 1]
mode = "mean"
interaction = "cat"
)"},
    {"logistic_rows", true, kAdult, R"(
[model]
type = "logistic_regression"
placement = "rows"
)"},
    {"logistic_regression", true, kAdult, R"(
[model]
type = "logistic_regression"
)"},
    {"fno", false, kDarcy, R"(
[model]
type = "fno"
width = 5
modes = [3]
layers = 2
projection = 9
)"},
    {"fno_sharded", false, kDarcy, R"(
[model]
type = "fno"
width = 4
modes = [4]
layers = 2
projection = 8
[parallel]
grid = [2]
[[model.insert]]
after = "x"
name = "spread"
type = "repartition"
dims = [2]
axes = [0]
[[model.insert]]
after = "y"
name = "targets"
type = "repartition"
dims = [2]
axes = [0]
)"},
};

}  // namespace

void write_sums(const std::string& folder) {
  const std::string file = folder + "/" + kSums;
  if (std::filesystem::exists(file)) return;
  // Several processes may do this at once.
  const std::string own = fmt::format("{}.{}", file, ::getpid());
  {
    std::ofstream lines(own);
    for (int i = 0; i < 48; ++i) {
      const int left = 10 + 7 * i % 80, right = 10 + 11 * i % 60;
      lines << fmt::format(
          R"({{"messages": [{{"role": "user", "content": "{}+{}"}}, {{"role": "assistant", "content": "{}"}}], )"
          R"("check": "number", "answer": "{}"}})"
          "\n",
          left, right, left + right, left + right);
    }
  }
  std::filesystem::rename(own, file);
}

std::vector<Base> small_bases(const std::string& folder) {
  std::vector<Base> bases;
  for (const Text& text : kBases) {
    std::string toml = std::string(text.data) + text.rest;
    constexpr std::string_view kPlace = "{sums}";
    if (toml.find(kPlace) != std::string::npos && folder.empty()) continue;
    for (std::size_t at = 0; (at = toml.find(kPlace)) != std::string::npos;)
      toml.replace(at, kPlace.size(), folder + "/" + kSums);
    bases.push_back({text.name, Config::parse(toml, text.name, {}).root(), text.has_rows});
  }
  return bases;
}

Base base_of_run(Value root) {
  erase_member(root, "run.max_seconds");
  erase_member(root, "run.name");
  set_member(root, "run.steps", Value(std::int64_t{8}));
  set_member(root, "run.eval_every", Value(std::int64_t{0}));
  set_member(root, "run.eval_batches", Value(std::int64_t{1}));
  return {"file", std::move(root), true, true};
}

void set_member(Value& root, std::string_view dotted, Value value) {
  const std::size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) {
    root.set(dotted, std::move(value), {});
    return;
  }
  const std::string_view table = dotted.substr(0, dot);
  if (root.find(table) == nullptr) root.set(table, Value(), {});
  set_member(*root.find(table), dotted.substr(dot + 1), std::move(value));
}

const Value* find_member(const Value& root, std::string_view dotted) {
  const std::size_t dot = dotted.find('.');
  const Value* const found = root.find(dotted.substr(0, dot));
  if (dot == std::string_view::npos || found == nullptr) return found;
  return find_member(*found, dotted.substr(dot + 1));
}

void erase_member(Value& root, std::string_view dotted) {
  const std::size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) return root.erase(dotted);
  if (Value* const table = root.find(dotted.substr(0, dot))) erase_member(*table, dotted.substr(dot + 1));
}

}  // namespace tenon::fuzz
