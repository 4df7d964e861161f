// tenon generate: text from a language model, token by token, as it was trained. The whole window is
// recomputed for each token; there is no cache of keys and values.
#include "command_line.hpp"
#include "generate_sampler.hpp"
#include "trained_graph.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>

namespace tenon::cli {
namespace {

/// Ids written as numbers, for data whose vocabulary is unknown.
std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) {
      fail_config(
          fmt::format("tenon generate: this run was trained on token files, whose text is unknown; --prompt "
                      "must hold token ids such as \"15496 995\", found '{}'",
                      text));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// The model in evaluation mode on stored weights.
class Predictor {
 public:
  Predictor(TrainedRun& run, models::StoredRun& stored)
      : graph_(run, stored, 1,
               [&](auto& model, const DataInfo& data) { return language_graph(run, model, data); }) {
    for (std::size_t i = 0; i < data().info().fields.size(); ++i) {
      if (data().info().fields[i].name == "tokens") tokens_ = graph_.executor().inputs()[i];
    }
  }

  Dataset& data() { return graph_.data(); }
  std::int64_t context() const { return tokens_.elements(); }
  std::int64_t vocabulary() { return graph_.executor().value(logits_).shape[2]; }

  /// Logits of the token after `ids`, of which the last context() count.
  const std::vector<double>& follow(std::span<const std::int32_t> ids) {
    const auto used = std::min(static_cast<std::int64_t>(ids.size()), context());
    std::vector<std::int32_t> window(context(), 0);
    std::copy(ids.end() - used, ids.end(), window.begin());
    graph_.device().copy({window.data(), tokens_.shape, DType::kI32, MemorySpace::kHost}, tokens_);
    graph_.forward(0);
    const TensorView all = graph_.executor().value(logits_);
    const TensorView row = all.reshaped({all.shape[1], all.shape[2]}).rows(used - 1, used);
    row_ = real_values(graph_.host_copy(row, 1));
    return row_;
  }

 private:
  GraphSpec language_graph(TrainedRun& run, train::NamedComponent<Model>& model, const DataInfo& data) {
    auto* language = static_cast<LanguageModel*>(model->query(LanguageModel::kId));
    if (language == nullptr) {
      fail_config(
          fmt::format("tenon generate: run {} trains the model '{}', which is no language model (it does not "
                      "offer {})",
                      run.folder(), run.type("model"), LanguageModel::kId));
    }
    LanguageGraph graph = model.guarded(*language)->language_graph(data);
    logits_ = graph.logits;
    return std::move(graph.graph);
  }

  std::string logits_;  // before graph_, whose construction fills it
  TrainedGraph graph_;
  TensorView tokens_;
  std::vector<double> row_;
};

std::vector<std::int32_t> prompt_ids(const Tokenizer* codec, const std::string& prompt,
                                     std::int64_t vocabulary) {
  std::vector<std::int32_t> ids = codec != nullptr ? codec->encode(prompt) : parse_ids(prompt);
  if (ids.empty()) fail_config("tenon generate: --prompt is empty; the model needs a token to go on from");
  for (const std::int32_t id : ids) {
    if (id >= vocabulary) {
      fail_config(fmt::format("tenon generate: --prompt holds token {}, and the model knows 0 to {}", id,
                              vocabulary - 1));
    }
  }
  return ids;
}

std::string ids_text(std::span<const std::int32_t> ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

void declare_generate(po::options_description& options) {
  options.add_options()("prompt", po::value<std::string>(),
                        "TEXT  what to go on from (token ids where the data is a token file)");
  options.add_options()("tokens", po::value<std::int64_t>()->default_value(128),
                        "N  tokens to add, default 128");
  options.add_options()("temperature", po::value<double>()->default_value(1),
                        "T  divides the logits, default 1; 0: the likeliest token always");
  options.add_options()("top-k", po::value<std::int64_t>()->default_value(0),
                        "K  choose among the K likeliest tokens; 0: all");
  options.add_options()("seed", po::value<std::uint64_t>()->default_value(1), "S  of the draws, default 1");
  options.add_options()("step", po::value<std::int64_t>(),
                        "N  checkpoint of slot N instead of the newest valid one");
  options.add_options()("json", "print text and token ids as JSON, at the end");
}

int run_generate(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kGenerate, {"run"}, arguments);
  if (parsed.helped) return 0;
  const po::variables_map& values = parsed.values;
  if (values.count("run") == 0 || values.count("prompt") == 0)
    fail_config("tenon generate: usage: tenon generate RUN --prompt TEXT [options]");
  const auto wanted = values["tokens"].as<std::int64_t>();
  if (wanted < 0) fail_config(fmt::format("tenon generate: --tokens is {}, expected 0 or more", wanted));
  const SamplerSettings settings{values["temperature"].as<double>(), values["top-k"].as<std::int64_t>(),
                                 values["seed"].as<std::uint64_t>()};
  const Sampler sampler(settings);

  TrainedRun trained("generate", values["run"].as<std::vector<std::string>>()[0]);
  std::optional<std::int64_t> step;
  if (values.count("step") > 0) step = values["step"].as<std::int64_t>();
  const auto stored = trained.open(step);
  Predictor predictor(trained, *stored);
  auto* const tokenized = static_cast<TokenizedText*>(predictor.data().query(TokenizedText::kId));
  const Tokenizer* const codec = tokenized != nullptr ? &tokenized->tokenizer() : nullptr;
  const auto& prompt = values["prompt"].as<std::string>();
  std::vector<std::int32_t> ids = prompt_ids(codec, prompt, predictor.vocabulary());
  const std::size_t given = ids.size();
  const auto text = [&](std::span<const std::int32_t> part) {
    return codec != nullptr ? codec->decode(part) : ids_text(part);
  };
  const bool json = values.count("json") > 0;
  if (!json) std::cout << text(ids) << std::flush;
  for (std::int64_t i = 0; i < wanted; ++i) {
    ids.push_back(sampler.next(predictor.follow(ids), ids.size()));
    if (!json) std::cout << (codec == nullptr ? " " : "") << text(std::span(ids).last(1)) << std::flush;
  }
  if (!json) {
    std::cout << "\n";
    return 0;
  }
  JsonWriter out;
  out.begin_object();
  out.member("run", trained.folder());
  out.member("step", stored->step());
  out.member("prompt", prompt);
  out.member("prompt_tokens", static_cast<std::int64_t>(given));
  out.member("tokens", wanted);
  out.member("temperature", settings.temperature);
  out.member("top_k", settings.top_k);
  out.member("seed", settings.seed);
  out.member("text", text(ids));
  out.member("ids", ids_text(ids));
  out.end_object();
  std::cout << out.take();
  return 0;
}

}  // namespace

const Command kGenerate{"generate", "RUN --prompt TEXT [options]",
                        "Sample text from a language model that was trained.", run_generate,
                        declare_generate};

}  // namespace tenon::cli
