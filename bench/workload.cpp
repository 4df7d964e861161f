// One side of a row of bench/compare: trains a workload once in this process and prints its times, or ends
// where its first slot begins, or prints what the device alone needs for the workload's products, copies
// and rows of large tables, or describes the workload and its peer. Usage: workload
// train|start|limit|describe NAME [--steps N]
// [--threads N] [--ranks N] [SIZE N]...; workload list Sizes that replace those of the workload: --layers
// --width --context --batch of a GPT, --rows --batch of a DLRM.
#include "data_sets.hpp"
#include "decoder_shape.hpp"
#include "dlrm_shape.hpp"
#include "field_shape.hpp"
#include "gpt_shape.hpp"
#include "mixer_shape.hpp"
#include "product_limit.hpp"
#include "row_limit.hpp"

#include <tenon/observer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/phases.hpp>
#include <tenon/plugin.hpp>
#include <tenon/testing/components.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

namespace tenon::bench {

/// An observer that prints when the first slot of a run began and when it had ended, on the clock that all
/// processes of the machine share, the time of the steps after the warm-up, and the number of parameters: one
/// line of JSON at the end of the run. It may end the process where the first slot begins.
class StepClock final : public Observer, public PhaseObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("warm", "1").at_least(1).doc_text("slots that are not timed"),
      option::boolean("only_start", "false").doc_text("end the process where the first slot begins")};
  static constexpr ComponentInfo kInfo{
      .id = "step_clock", .summary = "prints how long steps took", .options = kOptions};

  explicit StepClock(const Options& options)
      : warm_(options.integer("warm")), only_start_(options.boolean("only_start")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override { parameters_ = info.parameters; }
  void on_phase(Phase phase, double) override {
    if (phase != Phase::kBegin) return;
    begun_ = now();
    if (only_start_) end_here();
  }
  void on_slot(const SlotRecord&) override {
    last_ = now();
    ++slots_;
    if (slots_ == 1) first_ = last_;
    if (slots_ == warm_) begin_ = last_;
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {
    const double counted = static_cast<double>(slots_ - warm_);
    std::printf(
        "{\"first_slot_at\": %.6f, \"first_step_at\": %.6f, \"seconds_per_step\": %.9f, \"parameters\": "
        "%lld}\n",
        begun_, first_, counted > 0 ? (last_ - begin_) / counted : 0.0, static_cast<long long>(parameters_));
  }
  void* query(std::string_view interface_id) override {
    return interface_id == PhaseObserver::kId ? static_cast<PhaseObserver*>(this) : nullptr;
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// Threads of the run are at work, so that nothing but the process can end.
  [[noreturn]] void end_here() const {
    std::printf("{\"first_slot_at\": %.6f, \"parameters\": %lld}\n", begun_,
                static_cast<long long>(parameters_));
    std::fflush(stdout);
    std::error_code ignored;
    std::filesystem::remove_all(run_folder(), ignored);
    std::_Exit(0);
  }

  std::int64_t warm_;
  bool only_start_;
  std::int64_t slots_ = 0, parameters_ = 0;
  double begun_ = 0, first_ = 0, begin_ = 0, last_ = 0;
};

namespace {

TENON_STATIC_PLUGIN(parts, PluginInfo{.id = "bench.parts", .version = "1.0.0", .summary = "data and a clock"},
                    ReadyBatches, RandomFields, RandomImages, StepClock)

/// Work that a step cannot avoid, at the device's own rates.
struct Limit {
  std::vector<ProductShape> products;
  double flops = 0;   ///< of products without a shape of their own, at the rate of the largest of the others
  double copied = 0;  ///< bytes that are read once and written once
  RowAccesses rows = {};
};

/// Sizes that replace those of a workload; a workload takes the ones that it asks for, and sizes that were
/// not taken are refused.
class Sizes {
 public:
  void add(const std::string& name, int value) { given_[name] = value; }
  void take(const char* name, int& size) {
    const auto found = given_.find(name);
    if (found == given_.end()) return;
    if (found->second < 1) fail_config(fmt::format("--{} is {}; expected 1 or more", name, found->second));
    size = found->second;
    given_.erase(found);
  }
  void refuse_rest(const std::string& workload) const {
    if (!given_.empty())
      fail_config(fmt::format("workload '{}' has no size --{}", workload, given_.begin()->first));
  }
  static bool known(const std::string& name) {
    const auto names = {"layers", "width", "context", "batch", "rows", "ranks"};
    return std::find(names.begin(), names.end(), name) != names.end();
  }

 private:
  std::map<std::string, int> given_;
};

struct Workload {
  std::string name, title, unit;
  double per_step = 0;  ///< units of a step
  int steps = 0;        ///< of a round, if not set otherwise
  std::string script;   ///< of the peer; "" without one
  std::function<std::string(const Settings&)> config, arguments;
  DType dtype = DType::kF32;
  Limit limit;
  double flops = 0;  ///< of a step, if known
};

Limit gpt_limit(const GptShape& shape) {
  const std::int64_t tokens = static_cast<std::int64_t>(shape.batch) * shape.context;
  const std::int64_t w = shape.width;
  return {.products = {{tokens, w, w, 3 * 4 * shape.layers},
                       {tokens, 4 * w, w, 3 * shape.layers},
                       {tokens, w, 4 * w, 3 * shape.layers},
                       {tokens, shape.vocabulary, w, 3}},
          .flops = static_cast<double>(tokens) * shape.attention_flops_per_token()};
}

Workload gpt(const std::string& name, GptShape shape, const std::string& precision, int steps, Sizes& sizes) {
  const int width = shape.width;
  sizes.take("layers", shape.layers);
  sizes.take("width", shape.width);
  sizes.take("context", shape.context);
  sizes.take("batch", shape.batch);
  if (shape.width != width) shape.heads = std::max(1, shape.width / 64);
  return {
      .name = name,
      .title = fmt::format("GPT, {} layers, width {}, context {}, batch {}, vocabulary {}, {}", shape.layers,
                           shape.width, shape.context, shape.batch, shape.vocabulary, precision),
      .unit = "tokens",
      .per_step = static_cast<double>(shape.batch) * shape.context,
      .steps = steps,
      .script = precision == "nvfp4" ? "" : "step_gpt_torch.py",
      .config =
          [=](const Settings& settings) {
            const std::string whole = precision == "nvfp4" ? "keep_first = 0\nkeep_last = 0\n" : "";
            return config_text(shape, fmt::format("type = \"{}\"\n{}", precision, whole), settings);
          },
      .arguments = [=](const Settings& settings) { return peer_arguments(shape, precision, settings); },
      .dtype = precision == "fp32" ? DType::kF32 : DType::kBF16,
      .limit = gpt_limit(shape),
      .flops = static_cast<double>(shape.batch) * shape.context * shape.flops_per_token()};
}

Workload decoder(const std::string& name, DecoderShape shape, const std::string& precision, int steps,
                 Sizes& sizes) {
  sizes.take("layers", shape.layers);
  sizes.take("context", shape.context);
  sizes.take("batch", shape.batch);
  const std::int64_t tokens = static_cast<std::int64_t>(shape.batch) * shape.context;
  const int of_layers = 3 * shape.layers;
  return {.name = name,
          .title = fmt::format("Llama, {} layers, width {}, {} of {} heads kept, context {}, batch {}, {}",
                               shape.layers, shape.width, shape.kv_heads, shape.heads, shape.context,
                               shape.batch, precision),
          .unit = "tokens",
          .per_step = static_cast<double>(tokens),
          .steps = steps,
          .script = "step_decoder_torch.py",
          .config = [=](const Settings& settings) { return config_text(shape, precision, settings); },
          .arguments = [=](const Settings& settings) { return peer_arguments(shape, precision, settings); },
          .dtype = precision == "fp32" ? DType::kF32 : DType::kBF16,
          .limit = {.products = {{tokens, shape.width, shape.width, 2 * of_layers},
                                 {tokens, shape.kv_width(), shape.width, 2 * of_layers},
                                 {tokens, shape.hidden, shape.width, 2 * of_layers},
                                 {tokens, shape.width, shape.hidden, of_layers},
                                 {tokens, shape.vocabulary, shape.width, 3}},
                    .flops = static_cast<double>(tokens) * shape.attention_flops_per_token()},
          .flops = static_cast<double>(tokens) * shape.flops_per_token()};
}

Workload mixer(const std::string& name, MixerShape shape, int steps, Sizes& sizes) {
  sizes.take("layers", shape.layers);
  sizes.take("width", shape.width);
  sizes.take("context", shape.context);
  sizes.take("batch", shape.batch);
  const std::int64_t tokens = static_cast<std::int64_t>(shape.batch) * shape.context;
  const double flops = static_cast<double>(tokens) * shape.flops_per_token();
  return {.name = name,
          .title = fmt::format("{}, {} layers, width {}, context {}, batch {}, fp32",
                               shape.letter == 'M' ? "Mamba-2" : "attention", shape.layers, shape.width,
                               shape.context, shape.batch),
          .unit = "tokens",
          .per_step = static_cast<double>(tokens),
          .steps = steps,
          .script = "",
          .config = [=](const Settings& settings) { return config_text(shape, settings); },
          .arguments = {},
          .limit = {.products = {{tokens, shape.vocabulary, shape.width, 3}}, .flops = flops},
          .flops = flops};
}

Workload dlrm(const std::string& name, DlrmShape shape, const std::string& precision, int steps,
              Sizes& sizes) {
  sizes.take("rows", shape.rows);
  sizes.take("batch", shape.batch);
  const std::int64_t vectors = shape.tables + 1;
  std::vector<ProductShape> products;
  const auto add = [&](std::int64_t inputs, const char* widths) {
    std::istringstream text(widths);
    for (std::string width; std::getline(text, width, ',');) {
      products.push_back({shape.batch, std::stoll(width), inputs});
      inputs = products.back().n;
    }
    return inputs;
  };
  const std::int64_t width = add(shape.dense, shape.bottom);
  add(width + vectors * (vectors - 1) / 2, shape.top);
  // Where accesses follow a power law, the caches hold most rows that a step reads.
  RowAccesses rows = {};
  if (shape.exponent == 0) rows = {shape.tables, shape.rows, width, shape.batch};
  return {.name = name,
          .title = fmt::format("DLRM, {} tables of {} rows, batch {}, {}", shape.tables, shape.rows,
                               shape.batch, precision),
          .unit = "samples",
          .per_step = static_cast<double>(shape.batch),
          .steps = steps,
          .script = "step_dlrm_torch.py",
          .config = [=](const Settings& settings) { return config_text(shape, precision, settings); },
          .arguments = [=](const Settings& settings) { return peer_arguments(shape, precision, settings); },
          .dtype = precision == "fp32" ? DType::kF32 : DType::kBF16,
          .limit = {.products = products, .rows = rows}};
}

Workload field(const std::string& name, const std::string& title, const FieldShape& shape, int steps,
               Limit limit) {
  return {.name = name,
          .title = fmt::format("{}, batch {}, fp32", title, shape.batch),
          .unit = "samples",
          .per_step = static_cast<double>(shape.batch),
          .steps = steps,
          .script = "step_fields_torch.py",
          .config = [=](const Settings& settings) { return config_text(shape, settings); },
          .arguments = [=](const Settings& settings) { return peer_arguments(shape, settings); },
          .limit = std::move(limit)};
}

/// A convolution as a product: a row per point of the result. The first layer does not compute the gradient
/// of its input.
ProductShape convolution(int batch, int side, int features, int channels, int kernel, int count,
                         bool first = false) {
  return {static_cast<std::int64_t>(batch) * side * side, features,
          static_cast<std::int64_t>(channels) * kernel * kernel, (first ? 2 : 3) * count};
}

Workload lenet5() {
  constexpr int kBatch = 256;
  return field("lenet5", "LeNet-5, images of 28 x 28", lenet5_shape(kBatch), 240,
               {.products = {convolution(kBatch, 28, 6, 1, 5, 1, true),
                             convolution(kBatch, 10, 16, 6, 5, 1),
                             {kBatch, 120, 400},
                             {kBatch, 84, 120},
                             {kBatch, 10, 84}}});
}

Workload resnet18() {
  constexpr int kBatch = 64;
  Limit limit{.products = {convolution(kBatch, 32, 64, 3, 3, 1, true),
                           convolution(kBatch, 32, 64, 64, 3, 4),
                           {kBatch, 10, 512}}};
  for (int channels = 64, side = 16; channels < 512; channels *= 2, side /= 2) {
    limit.products.push_back(convolution(kBatch, side, 2 * channels, channels, 3, 1));
    limit.products.push_back(convolution(kBatch, side, 2 * channels, channels, 1, 1));
    limit.products.push_back(convolution(kBatch, side, 2 * channels, 2 * channels, 3, 3));
  }
  return field("resnet18", "ResNet-18, images of 3 x 32 x 32", resnet18_shape(kBatch), 6, limit);
}

Workload fno2d() {
  constexpr int kBatch = 16, kSide = 64, kWidth = 32, kProjection = 128, kLayers = 4;
  // Each field of the hidden layers is written and read once forward; backward its gradient is, and the field
  // is read again. Transforms and products of modes come on top.
  const double fields = kWidth * (kLayers + 1) + kProjection;
  return field("fno2d", "FNO, 64 x 64 points, width 32, 12 modes", fno_shape(kBatch), 12,
               {.products = {convolution(kBatch, kSide, kWidth, 3, 1, 1, true),
                             convolution(kBatch, kSide, kWidth, kWidth, 1, kLayers),
                             convolution(kBatch, kSide, kProjection, kWidth, 1, 1),
                             convolution(kBatch, kSide, 1, kProjection, 1, 1)},
                .copied = 2.5 * 4 * kBatch * kSide * kSide * fields});
}

/// Nearly all tables: a step does little else, ids are uniform, and batches do not repeat.
DlrmShape tables_shape() {
  return {.tables = 4,
          .exponent = 0,
          .bottom = "16",
          .top = "16,1",
          .optimizer = "rowwise_adagrad\"\nlr = 0.02",
          .ready = 200};
}

using Make = std::function<Workload(Sizes&)>;

std::vector<std::pair<std::string, Make>> workloads() {
  std::vector<std::pair<std::string, Make>> all;
  const auto add_gpt = [&](const std::string& name, const GptShape& shape, const char* precision, int steps) {
    all.emplace_back(name, [=](Sizes& sizes) { return gpt(name, shape, precision, steps, sizes); });
  };
  const auto add_dlrm = [&](const std::string& name, const DlrmShape& shape, const char* precision,
                            int steps) {
    all.emplace_back(name, [=](Sizes& sizes) { return dlrm(name, shape, precision, steps, sizes); });
  };
  for (const char* precision : {"fp32", "bf16", "nvfp4"})
    add_gpt(fmt::format("gpt-{}", precision), {}, precision, 8);
  for (const char* precision : {"fp32", "bf16"})
    add_gpt(fmt::format("gpt125m-{}", precision), neo_125m_shape(), precision, 4);
  add_gpt("gpt-tiny", tiny_shape(), "fp32", 200);
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string name = fmt::format("decoder-{}", precision);
    all.emplace_back(name, [=](Sizes& sizes) { return decoder(name, {}, precision, 8, sizes); });
  }
  for (const char letter : {'M', '*'}) {
    const std::string name = letter == 'M' ? "mamba2" : "attention";
    all.emplace_back(name, [=](Sizes& sizes) { return mixer(name, {.letter = letter}, 8, sizes); });
  }
  for (const char* precision : {"fp32", "bf16"})
    add_dlrm(fmt::format("dlrm-{}", precision), {}, precision, 60);
  add_dlrm("tables", tables_shape(), "fp32", 200);
  all.emplace_back("lenet5", [](Sizes&) { return lenet5(); });
  all.emplace_back("resnet18", [](Sizes&) { return resnet18(); });
  all.emplace_back("fno2d", [](Sizes&) { return fno2d(); });
  return all;
}

/// Uses this many ranks as threads, each with its own batch.
void set_ranks(Workload& workload, int ranks) {
  if (ranks == 1) return;
  workload.title += fmt::format(", {} ranks", ranks);
  workload.per_step *= ranks;
  workload.flops *= ranks;
  workload.script.clear();
  workload.config = [config = workload.config, ranks](const Settings& settings) {
    return config(settings) + fmt::format(
                                  "[parallel]\nranks = {}\n[transport]\ntype = \"thread\"\n[sync]\n"
                                  "type = \"ddp\"\n",
                                  ranks);
  };
}

Workload named(const std::string& name, Sizes sizes) {
  std::string known;
  for (const auto& [other, make] : workloads()) {
    if (other == name) {
      int ranks = 1;
      sizes.take("ranks", ranks);
      Workload workload = make(sizes);
      sizes.refuse_rest(name);
      set_ranks(workload, ranks);
      return workload;
    }
    known += " " + other;
  }
  fail_config(fmt::format("there is no workload '{}'; there are:{}", name, known));
}

int print_list() {
  for (const auto& [name, make] : workloads()) {
    Sizes none;
    fmt::print("{}: {}\n", name, make(none).title);
  }
  return 0;
}

/// Describes the workload and the command of its peer.
void describe(const Workload& workload, const Settings& settings) {
  fmt::print(
      "{{\"title\": \"{}\", \"unit\": \"{}\", \"per_step\": {}, \"script\": \"{}\", \"arguments\": "
      "\"{}\", \"flops_per_step\": {}}}\n",
      workload.title, workload.unit, workload.per_step, workload.script,
      workload.script.empty() ? "" : workload.arguments(settings), workload.flops);
}

int train_once(const Workload& workload, const Settings& settings) {
  // A quarter of the steps warms up, as the peers' does.
  const int warm = std::max(1, settings.steps / 4);
  train(workload.config(settings) + fmt::format("[[observe]]\ntype = \"step_clock\"\nwarm = {}\n", warm),
        &parts);
  return 0;
}

int start_once(const Workload& workload, const Settings& settings) {
  train(workload.config(settings) + "[[observe]]\ntype = \"step_clock\"\nonly_start = true\n", &parts);
  fail_run("the run ended before its first slot began");
}

int print_limit(const Workload& workload, const Settings& settings) {
  Runtime runtime;
  runtime.discover({});
  testing::QuietHost host;
  auto device = testing::make<Device>(runtime.registry(), host, "cpu", "");
  set_parallel_threads(settings.threads);
  device->open({0, settings.threads, "auto"});
  double seconds = 0, flops = 0, largest = 0, rate = 0;
  for (const ProductShape& product : workload.limit.products) {
    const double one = product_seconds(product, workload.dtype, *device);
    seconds += product.passes * one;
    flops += product.passes * product.flops();
    if (product.flops() > largest) largest = product.flops(), rate = largest / one;
  }
  if (workload.limit.flops > 0) seconds += workload.limit.flops / rate;
  if (workload.limit.rows.tables > 0) seconds += RowLimit(workload.limit.rows, *device).seconds();
  if (workload.limit.copied > 0) seconds += workload.limit.copied * copy_seconds_per_byte(*device);
  fmt::print("{{\"seconds_per_step\": {:.9f}, \"gflops\": {:.1f}, \"kernels\": \"{}\"}}\n", seconds,
             1e-9 * (flops + workload.limit.flops) / seconds, device->kernel_choice());
  return 0;
}

int usage() {
  fmt::print(stderr,
             "usage: workload train|start|limit|describe NAME [--steps N] [--threads N] "
             "[--ranks N] [SIZE N]...; workload list\n");
  return 2;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  using namespace tenon::bench;
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "list") return print_list();
  if (argc < 3 || (what != "train" && what != "start" && what != "limit" && what != "describe"))
    return usage();
  const std::string name = argv[2];
  Sizes sizes;
  std::vector<char*> others = {argv[2]};
  for (int i = 3; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 < argc && option.rfind("--", 0) == 0 && Sizes::known(option.substr(2)))
      sizes.add(option.substr(2), std::atoi(argv[i + 1]));
    else
      others.insert(others.end(), argv + i, argv + std::min(i + 2, argc));
  }
  const int count = static_cast<int>(others.size());
  return run_program("workload", count, others.data(), {.steps = 0}, [&](Settings settings) {
    const Workload workload = named(name, sizes);
    if (settings.steps < 1) settings.steps = workload.steps;
    describe(workload, settings);
    if (what == "describe") return 0;
    if (what == "start") return start_once(workload, settings);
    return what == "train" ? train_once(workload, settings) : print_limit(workload, settings);
  });
}
