// Time per drawn token after contexts from 256 to 16,384: the hybrid of configs/base/hybrid_tiny.toml against
// attention alone and Mamba-2 alone of the same width, and how many bytes each keeps of a sequence. Ends with
// 1 where the hybrid's median of 8,192 over 256 misses its aim. Usage: decode_length [--rounds N] [--steps N]
// [--threads N], where steps are the tokens that are drawn after each context.
#include "step_bench.hpp"

#include "generate/stepwise_generator.hpp"

#include <tenon/testing/components.hpp>

#include <chrono>
#include <map>

namespace tenon::bench {
namespace {

constexpr std::int64_t kLongest = 16384, kRoom = 512, kVocabulary = 256;
constexpr std::int64_t kContexts[] = {256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr double kAim = 1.1;
constexpr const char* kHybrid =
    "pattern = 'M-M-M*-M-'\nwidth = 128\nposition = 'none'\nheads = 4\nkv_heads = 2\nhidden = 384\n"
    "ffn = 'squared_relu'\nmamba_heads = 16\nmamba_head_width = 16\nmamba_state = 32\nmamba_groups = 2\n"
    "mamba_chunk = 32";
constexpr const char* kAttention =
    "pattern = '*-'\nrepeat = 4\nwidth = 128\nposition = 'none'\nheads = 4\nkv_heads = 2\nhidden = 384\n"
    "ffn = 'squared_relu'";

constexpr const char* kMamba =
    "pattern = 'M-'\nrepeat = 4\nwidth = 128\nposition = 'none'\nheads = 4\nhidden = 384\n"
    "ffn = 'squared_relu'\nmamba_heads = 16\nmamba_head_width = 16\nmamba_state = 32\nmamba_groups = 2\n"
    "mamba_chunk = 32";

class DrawnModel {
 public:
  DrawnModel(const char* options, int threads)
      : bench_("cpu", "auto", threads),
        policy_(bench_.make_component<Precision>("fp32", "")),
        model_(bench_.make_component<Model>("decoder", options)) {
    DataInfo data;
    data.fields = {{"tokens", DType::kI32, {kLongest + kRoom}}, {"targets", DType::kI32, {kLongest + kRoom}}};
    data.attributes = {{"vocabulary", kVocabulary}};
    ExecutorSpec spec;
    spec.layers = bench_.layers.get(), spec.device = &*bench_.device, spec.host = &bench_.host;
    spec.precision = &*policy_;
    spec.training = false;
    auto* const language = static_cast<LanguageModel*>(model_->query(LanguageModel::kId));
    generator_ = std::make_unique<generate::StepwiseGenerator>(
        spec, language->language_graph(generate::StepwiseGenerator::prompt_data(data)), data,
        generate::GeneratorSettings{.batch = 1});
    weights_ = make_parameter_set("live", generator_->parameters(), *bench_.device, SetContents::kEverything);
    initialise(*weights_, 4, *bench_.device);
    generator_->bind(*weights_, 0);
  }

  std::string_view kernels() { return bench_.device->kernel_choice(); }
  std::int64_t kept_bytes() const { return generator_->sequence_bytes(); }

  /// Median of the seconds between tokens, so that a pause of the thread does not count; `tokens` of them
  /// follow a prompt of this length. What reads the prompt does not count.
  double seconds_per_token(std::int64_t context, int tokens) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(context));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 31 % kVocabulary);
    const Prompt prompt{ids, 0};
    std::vector<std::chrono::steady_clock::time_point> heard;
    generator_->generate({&prompt, 1}, {.most = tokens + 1}, [&](std::size_t, std::int32_t, double) {
      heard.push_back(std::chrono::steady_clock::now());
      return true;
    });
    std::vector<double> between;
    for (std::size_t i = 1; i < heard.size(); ++i)
      between.push_back(std::chrono::duration<double>(heard[i] - heard[i - 1]).count());
    return median(between);
  }

 private:
  testing::Bench bench_;
  testing::Made<Precision> policy_;
  testing::Made<Model> model_;
  std::unique_ptr<ParameterSet> weights_;
  std::unique_ptr<generate::StepwiseGenerator> generator_;
};

std::vector<double> scaled(const std::vector<double>& seconds) {
  std::vector<double> result;
  for (const double second : seconds) result.push_back(1e6 * second);
  return result;
}

std::vector<double> over(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] / b[i]);
  return result;
}

int measure(const Settings& settings) {
  struct Measured {
    const char* pattern;
    DrawnModel model;
    std::map<std::int64_t, std::vector<double>> seconds = {};
  };
  Measured hybrid{"M-M-M*-M-", {kHybrid, settings.threads}};
  Measured attention{"*-*-*-*-", {kAttention, settings.threads}};
  Measured mamba{"M-M-M-M-", {kMamba, settings.threads}};
  fmt::print("width 128, f32, kernels {}, {} thread(s), context {}\n", hybrid.model.kernels(),
             settings.threads, kLongest + kRoom);
  for (Measured* one : {&hybrid, &attention, &mamba}) {
    fmt::print("{:<9} keeps {} KiB of a sequence\n", one->pattern, one->model.kept_bytes() / 1024);
    one->model.seconds_per_token(256, settings.steps);
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (const std::int64_t context : kContexts) {
      for (Measured* one : {&hybrid, &attention, &mamba})
        one->seconds[context].push_back(one->model.seconds_per_token(context, settings.steps));
    }
  }
  for (const std::int64_t context : kContexts) {
    for (Measured* one : {&hybrid, &attention, &mamba})
      fmt::print("after {:>5}: {:<9} {} us per token, {} x of 256, {} x of the hybrid\n", context,
                 one->pattern, spread(scaled(one->seconds[context])),
                 spread(over(one->seconds[context], one->seconds[256])),
                 spread(over(one->seconds[context], hybrid.seconds[context])));
  }
  const double growth = median(over(hybrid.seconds[8192], hybrid.seconds[256]));
  fmt::print("hybrid, 8192 over 256: {:.2f}, aim at most {}{}\n", growth, kAim,
             growth > kAim ? ": missed" : "");
  return growth > kAim ? 1 : 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("decode_length", argc, argv, {.rounds = 5, .steps = 64},
                                   tenon::bench::measure);
}
