// Text from a GPT of 4 layers of width 128 and a context of 1,024, of 128 tokens and up to the end of the
// context: one text on kept keys and values against a forward over the whole window for each token, and 16
// texts at a time against one. Ends with 1 where a median misses its aim. Usage: decode [--rounds N] [--steps
// N] [--threads N] [--json true]; with --json the rates in f32 of 128 tokens, for bench/compare
#include "step_bench.hpp"

#include "generate/stepwise_generator.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <chrono>

namespace tenon::bench {
namespace {

constexpr std::int64_t kContext = 1024, kVocabulary = 256, kTexts = 16, kShort = 128;
constexpr double kOverWindows = 20, kOverOne = 5;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Decoding {
 public:
  Decoding(const char* precision, int threads)
      : bench_("cpu", "auto", threads),
        policy_(bench_.make_component<Precision>(precision, "")),
        model_(bench_.make_component<Model>("gpt_neo", "layers = 4\nwidth = 128\nheads = 4")) {
    data_.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
    data_.attributes = {{"vocabulary", kVocabulary}};
    const LanguageGraph graph = language();
    ExecutorSpec spec = this->spec();
    spec.keep = {graph.logits};
    window_ = std::make_unique<Executor>(spec, graph.graph, data_);
    logits_ = graph.logits;
    weights_ = make_parameter_set("live", window_->parameters(), *bench_.device, SetContents::kEverything);
    initialise(*weights_, 4, *bench_.device);
    window_->bind(*weights_);
    generator_ = std::make_unique<generate::StepwiseGenerator>(this->spec(), graph, data_,
                                                               generate::GeneratorSettings{});
    generator_->bind(*weights_, 0);
  }

  std::string_view kernels() { return bench_.device->kernel_choice(); }
  std::int64_t kept_bytes() const { return generator_->sequence_bytes(); }

  /// Tokens per second of so many texts at a time, of `most` tokens, from one token on.
  double kept(std::int64_t texts, std::int64_t most) {
    const std::int32_t first = 10;
    std::vector<Prompt> prompts;
    for (std::int64_t i = 0; i < texts; ++i) prompts.push_back({{&first, 1}, static_cast<std::uint64_t>(i)});
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t tokens = 0;
    for (const Generated& text : generator_->generate(prompts, {.most = most}))
      tokens += static_cast<std::int64_t>(text.ids.size());
    return static_cast<double>(tokens) / seconds_since(begin);
  }
  /// The same, by forwards over the window, of which each gives the logits of one token.
  double windows(int tokens) {
    generate::Sampler sampler({});
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < tokens; ++i) {
      window_->inputs()[0].as<std::int32_t>()[i] = 10 + i;
      window_->forward(*weights_, {.training = false});
      const TensorView logits = window_->value(logits_).reshaped({kContext, kVocabulary});
      sampler.next(testing::read(*bench_.device, logits.rows(i, i + 1)), 0, static_cast<std::uint64_t>(i));
    }
    return tokens / seconds_since(begin);
  }

 private:
  LanguageGraph language() {
    return static_cast<LanguageModel*>(model_->query(LanguageModel::kId))
        ->language_graph(generate::StepwiseGenerator::prompt_data(data_));
  }
  ExecutorSpec spec() {
    ExecutorSpec result;
    result.layers = bench_.layers.get(), result.device = &*bench_.device, result.host = &bench_.host;
    result.precision = &*policy_;
    result.training = false;
    return result;
  }

  testing::Bench bench_;
  testing::Made<Precision> policy_;
  testing::Made<Model> model_;
  DataInfo data_;
  std::string logits_;
  std::unique_ptr<ParameterSet> weights_;
  std::unique_ptr<Executor> window_;
  std::unique_ptr<generate::StepwiseGenerator> generator_;
};

int print_rates(const Settings& settings) {
  Decoding decoding("fp32", settings.threads);
  decoding.kept(kTexts, kShort);
  std::vector<double> one, many;
  for (int round = 0; round < settings.rounds; ++round) {
    one.push_back(decoding.kept(1, kShort));
    many.push_back(decoding.kept(kTexts, kShort));
  }
  print_json({{"one_per_s", median(one)}, {"many_per_s", median(many)}});
  return 0;
}

int measure(const Settings& settings) {
  if (settings.json) return print_rates(settings);
  bool met = true;
  for (const char* precision : {"fp32", "bf16"}) {
    Decoding decoding(precision, settings.threads);
    fmt::print(
        "{}: 4 layers of width 128, 4 heads, context {}, kernels {}, {} thread(s); {} KiB kept of a text\n",
        precision, kContext, decoding.kernels(), settings.threads, decoding.kept_bytes() / 1024);
    decoding.windows(1);
    decoding.kept(kTexts, kShort);
    struct Length {
      std::int64_t tokens;
      std::vector<double> one = {}, many = {}, over_windows = {}, over_one = {};
    };
    std::vector<Length> lengths = {{kShort}, {kContext - 1}};
    std::vector<double> windows;
    for (int round = 0; round < settings.rounds; ++round) {
      windows.push_back(decoding.windows(settings.steps));
      for (Length& length : lengths) {
        length.one.push_back(decoding.kept(1, length.tokens));
        length.many.push_back(decoding.kept(kTexts, length.tokens));
        length.over_windows.push_back(length.one.back() / windows.back());
        length.over_one.push_back(length.many.back() / length.one.back());
      }
    }
    const auto line = [&](const std::string& what, const std::vector<double>& rates,
                          const std::vector<double>& ratios, double aim) {
      const bool missed = median(ratios) < aim;
      fmt::print("{:<32} {} tokens/s, {} x, aim at least {}{}\n", what, spread(rates), spread(ratios), aim,
                 missed ? ": missed" : "");
      met = met && !missed;
    };
    fmt::print("{:<32} {} tokens/s\n", "one text by windows", spread(windows));
    for (const Length& length : lengths) {
      const std::string of = fmt::format(" of {} tokens", length.tokens);
      line("one text" + of + ", of windows", length.one, length.over_windows, kOverWindows);
      line("16 texts" + of + ", of one", length.many, length.over_one, kOverOne);
    }
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("decode", argc, argv, {.rounds = 5, .steps = 20}, tenon::bench::measure);
}
