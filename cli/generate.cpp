// tenon generate: text from a language model, token by token, as it was trained. The whole window is computed
// anew for each token; there is no cache of keys and values.
#include "command_line.hpp"
#include "generate_sampler.hpp"
#include "stored_run.hpp"

#include "observe/json_writer.hpp"
#include "train/graph_edits.hpp"
#include "train/parts.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/language.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
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
  Predictor(StoredRun& run, CheckpointReader& reader)
      : model_(run.make<Model>("model")),
        data_(run.make<Dataset>("data")),
        device_(run.make<Device>("device")) {
    auto* language = static_cast<LanguageModel*>(model_->query(LanguageModel::kId));
    if (language == nullptr) {
      fail_config(
          fmt::format("tenon generate: run {} trains the model '{}', which is no language model (it does not "
                      "offer {})",
                      run.folder(), run.type("model"), LanguageModel::kId));
    }
    const config::CoreSettings& settings = run.checked().core;
    device_->open(
        {0, static_cast<int>(std::max<std::int64_t>(1, settings.device.threads)), settings.device.kernels});
    data_->open(settings.run.seed_order);
    if (run.checked().component("precision") != nullptr) precision_ = run.make<Precision>("precision");
    layers_ = make_registry_layers(run.registry(), run.host());
    LanguageGraph language_graph = language->language_graph(data_->info());
    logits_ = language_graph.logits;
    ExecutorSpec spec;
    spec.layers = layers_.get();
    spec.device = device_.get();
    spec.host = &run.host();
    spec.precision = precision_ ? precision_.get() : plain_.get();
    spec.training = false;
    spec.keep_values = true;
    executor_ = std::make_unique<Executor>(
        spec, train::edit_graph(std::move(language_graph.graph), run.checked().model_edits), data_->info());
    load(reader);
    for (std::size_t i = 0; i < data_->info().fields.size(); ++i) {
      if (data_->info().fields[i].name == "tokens") tokens_ = executor_->inputs()[i];
    }
  }

  Dataset& data() { return *data_; }
  std::int64_t context() const { return tokens_.elements(); }
  std::int64_t vocabulary() { return executor_->value(logits_).shape[2]; }

  /// Logits of what follows `ids`, of which the last context() count.
  const std::vector<double>& follow(std::span<const std::int32_t> ids) {
    const auto used = std::min(static_cast<std::int64_t>(ids.size()), context());
    std::vector<std::int32_t> window(static_cast<std::size_t>(context()), 0);
    std::copy(ids.end() - used, ids.end(), window.begin());
    device_->copy({window.data(), tokens_.shape, DType::kI32, MemorySpace::kHost}, tokens_);
    RunSpec run;
    run.training = false;
    executor_->forward(*weights_, run);
    const TensorView all = executor_->value(logits_);
    row_.resize(static_cast<std::size_t>(all.shape[2]));
    const TensorView row = all.reshaped({all.shape[1], all.shape[2]}).rows(used - 1, used);
    std::vector<std::byte> bytes(static_cast<std::size_t>(row.bytes()));
    device_->copy(row, {bytes.data(), row.shape, row.dtype, MemorySpace::kHost});
    device_->synchronize();
    for (std::size_t i = 0; i < row_.size(); ++i) row_[i] = element(row.dtype, bytes, i);
    return row_;
  }

 private:
  void load(CheckpointReader& reader) {
    weights_ = make_parameter_set("live", executor_->parameters(), *device_, SetContents::kEverything);
    const std::string prefix = StoredRun::weights_prefix(reader);
    for (const ParameterInfo& info : executor_->parameters()) {
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(dtype_bytes(info.spec.dtype, info.spec.shape.elements())));
      const TensorView host{bytes.data(), info.spec.shape, info.spec.dtype, MemorySpace::kHost};
      reader.read(prefix + info.spec.name, host);
      device_->copy(host, weights_->tensor(info.index));
    }
    weights_->touch(-1);
  }

  static double element(DType dtype, std::span<const std::byte> bytes, std::size_t i) {
    const auto at = [&]<typename T>(T value) {
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      return value;
    };
    if (dtype == DType::kF64) return at(double{});
    if (dtype == DType::kF32) return at(float{});
    return std::bit_cast<float>(static_cast<std::uint32_t>(at(std::uint16_t{})) << 16);
  }

  Component<Model> model_;
  Component<Dataset> data_;
  Component<Device> device_;
  Component<Precision> precision_;
  std::unique_ptr<Precision> plain_ = train::make_plain_precision();
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterSet> weights_;
  std::string logits_;
  TensorView tokens_;
  std::vector<double> row_;
};

std::vector<std::int32_t> prompt_ids(const TextCodec* codec, const std::string& prompt,
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

void declare(po::options_description& options) {
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

int run(const std::vector<std::string>& arguments) {
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

  StoredRun stored("generate", values["run"].as<std::vector<std::string>>()[0]);
  std::optional<std::int64_t> step;
  if (values.count("step") > 0) step = values["step"].as<std::int64_t>();
  CheckpointReader reader = stored.checkpoint(step);
  Predictor predictor(stored, reader);
  const auto* codec = static_cast<TextCodec*>(predictor.data().query(TextCodec::kId));
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
  out.member("run", stored.folder());
  out.member("step", reader.step());
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
                        "Sample text from a language model that was trained.", run, declare};

}  // namespace tenon::cli
