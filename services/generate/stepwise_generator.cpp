// The length of a prompt alone decides its split into passes, so that no value of a sequence depends on
// those beside it.
#include "generate/stepwise_generator.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tenon::generate {
namespace {

/// Passes over a prompt have so many positions at least; a few more cost little.
constexpr std::int64_t kLeastTime = 8;

std::size_t tokens_field(const DataInfo& data) {
  const auto found =
      std::ranges::find_if(data.fields, [](const DataField& field) { return field.name == "tokens"; });
  if (found == data.fields.end() || found->dtype != DType::kI32 || found->shape.rank() != 1) {
    fail_config(
        "generate: the data has no field 'tokens' of shape [time] and type i32, which a language model "
        "reads");
  }
  return found - data.fields.begin();
}

}  // namespace

/// An executor of one shape.
struct StepwiseGenerator::Pass {
  std::int64_t batch, time;
  Executor executor;
  std::vector<std::int32_t> tokens;  ///< [batch, time]
};

struct StepwiseGenerator::Sequence {
  std::size_t index = 0;  ///< of the prompt
  std::int64_t row = 0;   ///< of the kept states
  ThinkingLimit thinking;
  std::vector<std::int32_t> seen = {};  ///< what the model has read, but the last token drawn
};

DataInfo StepwiseGenerator::prompt_data(const DataInfo& data) {
  DataInfo prompt = data;
  std::erase_if(prompt.fields, [](const DataField& field) {
    return field.name == "documents" || field.name == "positions";
  });
  return prompt;
}

StepwiseGenerator::StepwiseGenerator(const ExecutorSpec& spec, LanguageGraph graph, const DataInfo& data,
                                     GeneratorSettings settings)
    : spec_(spec),
      graph_(std::move(graph)),
      data_(prompt_data(data)),
      settings_(std::move(settings)),
      field_(tokens_field(data_)) {
  context_ = data_.fields[field_].shape[0];
  if (settings_.batch < 1 || settings_.chunk < 1) {
    fail_config(fmt::format("generate: batch is {} and chunk {}, expected 1 or more", settings_.batch,
                            settings_.chunk));
  }
  settings_.chunk = std::min(settings_.chunk, context_);
  spec_.training = false;
  spec_.input_gradients = false;
  spec_.keep_values = false;
  spec_.keep = {graph_.logits};
  spec_.only_kept = true;
  spec_.positions = context_;
  spec_.frozen.clear();
  Pass& one = pass(1, 1);
  vocabulary_ = one.executor.value(graph_.logits).shape[2];
  states_ = one.executor.make_sequences(settings_.batch);
}

StepwiseGenerator::~StepwiseGenerator() = default;

const std::vector<ParameterInfo>& StepwiseGenerator::parameters() const {
  return passes_.begin()->second->executor.parameters();
}

void StepwiseGenerator::bind(ParameterSet& weights, std::int64_t slot) {
  for (const auto& [shape, pass] : passes_) pass->executor.bind(weights);
  weights_ = &weights;
  slot_ = slot;
}

std::int64_t StepwiseGenerator::sequence_bytes() const {
  return states_->bytes() / states_->sequences();
}

std::int64_t StepwiseGenerator::allocated_bytes() const {
  std::int64_t bytes = states_->bytes();
  for (const auto& [shape, pass] : passes_) bytes += pass->executor.allocated_bytes();
  return bytes;
}

std::int64_t StepwiseGenerator::read_time(std::int64_t count) const {
  const auto padded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
  return count == 1 ? 1 : std::min(std::max(padded, kLeastTime), settings_.chunk);
}

std::int64_t StepwiseGenerator::step_batch(std::int64_t rows) const {
  return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows))),
                  settings_.batch);
}

void StepwiseGenerator::make_all() {
  for (std::int64_t rows = 1; rows <= settings_.batch; ++rows) pass(step_batch(rows), 1);
  for (std::int64_t count = 1; count <= settings_.chunk; ++count) pass(1, read_time(count));
}

StepwiseGenerator::Pass& StepwiseGenerator::pass(std::int64_t batch, std::int64_t time) {
  std::unique_ptr<Pass>& found = passes_[{batch, time}];
  if (found != nullptr) return *found;
  ExecutorSpec spec = spec_;
  spec.batch = batch;
  DataInfo data = data_;
  for (DataField& field : data.fields) {
    if (field.shape.rank() > 0 && field.shape[0] == context_) field.shape[0] = time;
  }
  auto made = std::unique_ptr<Pass>(new Pass{batch, time, {spec, graph_.graph, data}, {}});
  made->tokens.resize(batch * time);
  for (std::size_t i = 0; i < data.fields.size(); ++i) {
    if (i != field_ && made->executor.inputs()[i].data != nullptr) {
      fail_config(fmt::format(
          "generate: the language graph reads the data field '{}', which a prompt does not have; remove the "
          "nodes that read it",
          data.fields[i].name));
    }
  }
  if (settings_.made) settings_.made(made->executor);
  if (weights_ != nullptr) made->executor.bind(*weights_);
  found = std::move(made);
  return *found;
}

void StepwiseGenerator::check(std::span<const Prompt> prompts, const ThinkingBudget& thinking) const {
  for (const std::int32_t id : thinking.close) {
    if (id < 0 || id >= vocabulary_) {
      fail_config(fmt::format("generate: thinking.close holds token {}, and the model knows 0 to {}", id,
                              vocabulary_ - 1));
    }
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].ids.empty())
      fail_config(fmt::format("generate: prompt {} is empty; the model needs a token to go on from", i));
    for (const std::int32_t id : prompts[i].ids) {
      if (id < 0 || id >= vocabulary_) {
        fail_config(fmt::format("generate: prompt {} holds token {}, and the model knows 0 to {}", i, id,
                                vocabulary_ - 1));
      }
    }
  }
}

std::vector<Generated> StepwiseGenerator::generate(std::span<const Prompt> prompts,
                                                   const GenerationSpec& spec, const TokenSink& sink) {
  Sampler sampler(spec);
  check(prompts, spec.thinking);
  if (weights_ == nullptr) fail_run("generate was called before weights were bound");
  std::vector<Generated> results(prompts.size());
  if (spec.most == 0) return results;

  // Draws or inserts the next token of a sequence, and says whether it goes on.
  const auto draw = [&](Sequence& sequence, std::span<const double> logits) {
    const Prompt& prompt = prompts[sequence.index];
    Generated& result = results[sequence.index];
    const auto position = static_cast<std::uint64_t>(prompt.ids.size() + result.ids.size());
    const std::optional<std::int32_t> inserted = sequence.thinking.inserted();
    const Drawn drawn = inserted ? Sampler::given(logits, *inserted, prompt.sequence, position)
                                 : sampler.next(logits, prompt.sequence, position);
    sequence.thinking.add(drawn.token);
    if (inserted && result.inserted++ == 0) result.inserted_at = static_cast<std::int64_t>(result.ids.size());
    result.ids.push_back(drawn.token);
    result.log_probs.push_back(drawn.log_prob);
    const bool wanted = !sink || sink(sequence.index, drawn.token, drawn.log_prob);
    if (std::ranges::find(spec.stop_ids, drawn.token) != spec.stop_ids.end()) {
      result.end = GenerationEnd::kStop;
    } else if (!wanted) {
      result.end = GenerationEnd::kSink;
    } else if (static_cast<std::int64_t>(result.ids.size()) == spec.most) {
      result.end = GenerationEnd::kMost;
    } else if (static_cast<std::int64_t>(sequence.seen.size()) == context_ && !spec.slides) {
      result.end = GenerationEnd::kContext;
    } else {
      return true;
    }
    return false;
  };

  std::vector<Sequence> live;
  std::vector<std::int64_t> free;
  for (std::int64_t row = settings_.batch; row > 0; --row) free.push_back(row - 1);
  std::size_t next = 0;
  std::vector<Sequence*> stepped;
  std::vector<bool> ended;
  while (true) {
    while (next < prompts.size() && !free.empty()) {
      const auto ids = prompts[next].ids;
      Sequence sequence{next++, free.back(), ThinkingLimit(spec.thinking, ids.back())};
      const auto used = std::min<std::size_t>(ids.size(), context_);
      if (!draw(sequence, read(sequence, ids.last(used)))) continue;
      free.pop_back();
      live.push_back(std::move(sequence));
    }
    if (live.empty()) return results;

    stepped.clear();
    ended.assign(live.size(), false);
    for (std::size_t i = 0; i < live.size(); ++i) {
      Sequence& sequence = live[i];
      const std::int32_t last = results[sequence.index].ids.back();
      if (static_cast<std::int64_t>(sequence.seen.size()) < context_) {
        sequence.seen.push_back(last);
        stepped.push_back(&sequence);
        continue;
      }
      std::vector<std::int32_t> rest(sequence.seen.end() - context_ / 2, sequence.seen.end());
      rest.push_back(last);
      ended[i] = !draw(sequence, read(sequence, rest));
    }
    const auto logits = stepped.empty() ? std::span<const double>() : step(stepped);
    for (std::size_t row = 0; row < stepped.size(); ++row) {
      const std::size_t i = stepped[row] - live.data();
      ended[i] = !draw(live[i], logits.subspan(row * vocabulary_, vocabulary_));
    }
    for (std::size_t i = live.size(); i > 0; --i) {
      if (!ended[i - 1]) continue;
      free.push_back(live[i - 1].row);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
  }
}

std::span<const double> StepwiseGenerator::read(Sequence& sequence, std::span<const std::int32_t> ids) {
  sequence.seen.assign(ids.begin(), ids.end());
  const auto all = static_cast<std::int64_t>(ids.size());
  std::int64_t first = 0;
  while (true) {
    const std::int64_t count = std::min(all - first, settings_.chunk);
    Pass& used = pass(1, read_time(count));
    std::ranges::fill(used.tokens, 0);
    std::ranges::copy(ids.subspan(first, count), used.tokens.begin());
    const bool last = first + count == all;
    const StepRun step{slot_, {&first, 1}, {&count, 1}, {&sequence.row, 1}};
    const auto logits = run(used, step, count - 1, last ? 1 : 0);
    if (last) return logits;
    first += count;
  }
}

std::span<const double> StepwiseGenerator::step(std::span<Sequence* const> live) {
  const auto rows = static_cast<std::int64_t>(live.size());
  const std::int64_t batch = step_batch(rows);
  Pass& used = pass(batch, 1);
  std::vector<std::int64_t> first(batch, 0), count(batch, 0), kept(batch, 0);
  std::vector<bool> taken(settings_.batch, false);
  std::ranges::fill(used.tokens, 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Sequence& sequence = *live[row];
    used.tokens[row] = sequence.seen.back();
    first[row] = static_cast<std::int64_t>(sequence.seen.size()) - 1;
    count[row] = 1;
    kept[row] = sequence.row;
    taken[sequence.row] = true;
  }
  // Rows without a sequence name states of others, which stay as they are.
  std::int64_t other = 0;
  for (std::int64_t row = rows; row < batch; ++row) {
    while (taken[other]) ++other;
    kept[row] = other++;
  }
  return run(used, {slot_, first, count, kept}, 0, rows);
}

std::span<const double> StepwiseGenerator::run(Pass& pass, const StepRun& step, std::int64_t first,
                                               std::int64_t rows) {
  Device& device = *spec_.device;
  const TensorView input = pass.executor.inputs()[field_];
  device.copy({pass.tokens.data(), input.shape, DType::kI32, MemorySpace::kHost}, input);
  pass.executor.step(*weights_, *states_, step);
  if (rows == 0) return {};
  const TensorView value = pass.executor.value(graph_.logits);
  const TensorView part = value.reshaped({pass.batch * pass.time, vocabulary_}).rows(first, first + rows);
  copied_.resize(part.bytes());
  const TensorView host{copied_.data(), part.shape, part.dtype, MemorySpace::kHost};
  device.copy(part, host);
  device.synchronize();
  logits_.clear();
  for_each_real(host, [&](double logit) { logits_.push_back(logit); });
  return logits_;
}

}  // namespace tenon::generate
