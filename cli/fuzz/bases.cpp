// Widths and sizes are odd where the model permits, since remainders of blocks are where kernels err.
#include "fuzz/bases.hpp"

#include <cstdint>
#include <utility>

namespace tenon::fuzz {
namespace {

struct Text {
  const char* name;
  bool has_rows;
  const char* toml;
};

constexpr Text kBases[] = {
    {"gpt_neo", false, R"(
[data]
type = "text"
context = 16
batch = 2
[model]
type = "gpt_neo"
layers = 2
width = 12
heads = 3
)"},
    {"decoder", false, R"(
[data]
type = "text"
context = 16
batch = 2
[model]
type = "decoder"
pattern = "*-"
width = 20
heads = 5
kv_heads = 1
hidden = 24
)"},
    {"hybrid", false, R"(
[data]
type = "text"
context = 16
batch = 2
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
    {"mlp", false, R"(
[data]
type = "mnist"
batch = 8
scale = "standard"
[model]
type = "mlp"
hidden = [17]
)"},
    {"lenet5", false, R"(
[data]
type = "mnist"
batch = 4
scale = "standard"
[model]
type = "lenet5"
)"},
    {"resnet", false, R"(
[data]
type = "mnist"
batch = 2
scale = "standard"
[model]
type = "resnet"
width = 4
)"},
    {"dlrm_adult", true, R"(
[data]
type = "adult"
buckets = 8
batch = 16
[model]
type = "dlrm"
bottom = [8, 5]
top = [7, 1]
)"},
    {"dlrm_synthetic", true, R"(
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
    {"dlrm_tables", true, R"(
[data]
type = "adult"
buckets = 8
batch = 16
[model]
type = "dlrm"
bottom = [8, 5]
top = [7, 1]
placement = "tables"
)"},
    {"logistic_regression", true, R"(
[data]
type = "adult"
buckets = 8
batch = 16
[model]
type = "logistic_regression"
)"},
    {"fno", false, R"(
[data]
type = "npy"
inputs = ["x=data/darcy/darcy_train_16_x.npy"]
targets = ["y=data/darcy/darcy_train_16_y.npy"]
types = ["x=f32"]
shapes = ["x=1x16x16", "y=1x16x16"]
batch = 2
[model]
type = "fno"
width = 5
modes = [3]
layers = 2
projection = 9
)"},
    {"fno_sharded", false, R"(
[data]
type = "npy"
inputs = ["x=data/darcy/darcy_train_16_x.npy"]
targets = ["y=data/darcy/darcy_train_16_y.npy"]
types = ["x=f32"]
shapes = ["x=1x16x16", "y=1x16x16"]
batch = 2
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

std::vector<Base> small_bases() {
  std::vector<Base> bases;
  for (const Text& text : kBases)
    bases.push_back({text.name, Config::parse(text.toml, text.name, {}).root(), text.has_rows});
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

void erase_member(Value& root, std::string_view dotted) {
  const std::size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) return root.erase(dotted);
  if (Value* const table = root.find(dotted.substr(0, dot))) erase_member(*table, dotted.substr(dot + 1));
}

}  // namespace tenon::fuzz
