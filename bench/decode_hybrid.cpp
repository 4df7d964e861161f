// Tokens drawn one by one from hybrid_tiny, whose Mamba-2 layers keep a state of constant size: time per
// token at 8,192 positions against that at 256, and against the same number of layers of attention at several
// positions. Ends with 1 where the median of the first ratio misses its aim.
// Usage: decode_hybrid [--rounds N] [--threads N]
#include "step_bench.hpp"

#include "generate/stepwise_generator.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <chrono>
#include <map>

namespace tenon::bench {
namespace {

constexpr std::int64_t kContext = 8192 + 32, kVocabulary = 256, kWindow = 64;
constexpr std::int64_t kPositions[] = {256, 512, 2048, 8192};
constexpr double kGrowth = 1.1;

constexpr const char* kHybrid = "pattern = \"M-M-M*-M-\"\n";
constexpr const char* kAttention = "pattern = \"*-*-**-*-\"\n";
constexpr const char* kSizes =
    "width = 128\nposition = \"none\"\nheads = 4\nkv_heads = 2\nhidden = 384\nffn = \"squared_relu\"\n";
constexpr const char* kMamba =
    "mamba_heads = 16\nmamba_head_width = 16\nmamba_state = 32\nmamba_groups = 2\nmamba_chunk = 32\n";

class Drawing {
 public:
  Drawing(const std::string& options, int threads)
      : bench_("cpu", "auto", threads),
        policy_(bench_.make_component<Precision>("fp32", "")),
        model_(bench_.make_component<Model>("decoder", options)) {
    data_.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
    data_.attributes = {{"vocabulary", kVocabulary}};
    const LanguageGraph graph = static_cast<LanguageModel*>(model_->query(LanguageModel::kId))
                                    ->language_graph(generate::StepwiseGenerator::prompt_data(data_));
    ExecutorSpec spec;
    spec.layers = bench_.layers.get(), spec.device = &*bench_.device, spec.host = &bench_.host;
    spec.precision = &*policy_;
    spec.training = false;
    generator_ =
        std::make_unique<generate::StepwiseGenerator>(spec, graph, data_, generate::GeneratorSettings{});
    spec.keep = {graph.logits};
    DataInfo one = data_;
    for (DataField& field : one.fields) field.shape = Shape{8};
    const Executor shapes(spec, graph.graph, one);
    weights_ = make_parameter_set("live", shapes.parameters(), *bench_.device, SetContents::kEverything);
    initialise(*weights_, 4, *bench_.device);
    generator_->bind(*weights_, 0);
  }

  std::int64_t kept_bytes() const { return generator_->sequence_bytes(); }

  /// Seconds per token before each of the positions, over a window of tokens.
  std::map<std::int64_t, double> seconds_at() {
    using Clock = std::chrono::steady_clock;
    std::vector<Clock::time_point> times;
    const std::int32_t first = 10;
    const Prompt prompt{{&first, 1}, 1};
    generator_->generate({&prompt, 1}, {.most = 8192 + 1}, [&](std::size_t, std::int32_t, double) {
      times.push_back(Clock::now());
      return true;
    });
    std::map<std::int64_t, double> seconds;
    for (const std::int64_t at : kPositions)
      seconds[at] = std::chrono::duration<double>(times.at(at) - times.at(at - kWindow)).count() / kWindow;
    return seconds;
  }

 private:
  testing::Bench bench_;
  testing::Made<Precision> policy_;
  testing::Made<Model> model_;
  DataInfo data_;
  std::unique_ptr<ParameterSet> weights_;
  std::unique_ptr<generate::StepwiseGenerator> generator_;
};

int measure(const Settings& settings) {
  Drawing hybrid(std::string(kHybrid) + kSizes + kMamba, settings.threads);
  Drawing attention(std::string(kAttention) + kSizes, settings.threads);
  fmt::print("{} thread(s); kept of a text of {} positions: {} KiB, with attention alone {} KiB\n",
             settings.threads, kContext, hybrid.kept_bytes() / 1024, attention.kept_bytes() / 1024);
  std::vector<double> growth;
  std::map<std::int64_t, std::vector<double>> microseconds, ratios;
  for (int round = 0; round < settings.rounds; ++round) {
    const auto ours = hybrid.seconds_at(), other = attention.seconds_at();
    growth.push_back(ours.at(8192) / ours.at(256));
    for (const std::int64_t at : kPositions) {
      microseconds[at].push_back(1e6 * ours.at(at));
      ratios[at].push_back(other.at(at) / ours.at(at));
    }
  }
  for (const std::int64_t at : kPositions)
    fmt::print("position {:>5}: {} us per token; {} x the rate of attention alone\n", at,
               spread(microseconds[at]), spread(ratios[at]));
  const bool met = median(growth) <= kGrowth;
  fmt::print("position 8,192 over 256: {}, aim {}{}\n", spread(growth), kGrowth, met ? "" : ": missed");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("decode_hybrid", argc, argv, {.rounds = 3}, tenon::bench::measure);
}
