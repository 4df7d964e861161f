// Generator of one rank: passes of a language graph on kept state. A pass over a prompt takes one sequence
// and many of its positions, a pass that draws takes one position of several sequences, and a sequence that
// ends leaves its place to the next prompt. It knows no text and no tokenizer.
#pragma once

#include "generate/sampler.hpp"
#include "generate/thinking_limit.hpp"

#include <tenon/executor.hpp>
#include <tenon/generator.hpp>
#include <tenon/language_model.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tenon::generate {

struct GeneratorSettings {
  std::int64_t batch = 16;   ///< sequences that go on together at most
  std::int64_t chunk = 128;  ///< positions of a prompt that one pass reads at most
  /// Called with each executor before it runs, for the state of its sites. They are made when first needed.
  std::function<void(Executor&)> made = {};
};

/// Not for several threads.
class StepwiseGenerator final : public Generator {
 public:
  /// `data` as a prompt has it: one document that begins at position 0, so without the fields of packed
  /// samples. The language graph of a model is asked for this.
  static DataInfo prompt_data(const DataInfo& data);

  /// Uses layers, device, host, precision, mesh and seeds of `spec`, which outlive this. data: of the run;
  /// its field "tokens" is i32 [context]. Throws Error(kConfig) for data without it, for graphs that read
  /// other fields, and for layers that do not run stepwise.
  StepwiseGenerator(const ExecutorSpec& spec, LanguageGraph graph, const DataInfo& data,
                    GeneratorSettings settings = {});
  ~StepwiseGenerator() override;

  /// The graph needs these, for a set that holds them.
  const std::vector<ParameterInfo>& parameters() const;
  /// Before the first generate(), and for other weights. `weights` outlives its use here: a set that has the
  /// parameters of the graph, among others. slot: as RunSpec's, for policies that change with it.
  void bind(ParameterSet& weights, std::int64_t slot);

  std::int64_t context() const override { return context_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::vector<Generated> generate(std::span<const Prompt> prompts, const GenerationSpec& spec,
                                  const TokenSink& sink = {}) override;

  /// What is kept of one sequence, on the device.
  std::int64_t sequence_bytes() const;
  /// On the device: kept of sequences, and by the executors so far.
  std::int64_t allocated_bytes() const;
  /// Makes all executors that any prompts may need, for allocated_bytes() of a whole run.
  void make_all();
  /// Sequences that go on together at most.
  std::int64_t batch() const { return settings_.batch; }

 private:
  struct Pass;
  struct Sequence;

  Pass& pass(std::int64_t batch, std::int64_t time);
  /// Positions of the pass that reads so many of a prompt.
  std::int64_t read_time(std::int64_t count) const;
  /// Rows of the pass that draws for so many sequences.
  std::int64_t step_batch(std::int64_t rows) const;
  void check(std::span<const Prompt> prompts, const ThinkingBudget& thinking) const;
  /// The model reads `ids` from position 0 on; the logits that follow the last one.
  std::span<const double> read(Sequence& sequence, std::span<const std::int32_t> ids);
  /// The model reads the last token of each, in one pass; logits row by row.
  std::span<const double> step(std::span<Sequence* const> live);
  /// `tokens`: filled in pass.tokens. Copies rows [first, first + rows) of the logits, if any.
  std::span<const double> run(Pass& pass, const StepRun& step, std::int64_t first, std::int64_t rows);

  ExecutorSpec spec_;
  LanguageGraph graph_;
  DataInfo data_;
  GeneratorSettings settings_;
  std::int64_t context_ = 0, vocabulary_ = 0, slot_ = 0;
  std::size_t field_ = 0;  ///< index of "tokens"
  ParameterSet* weights_ = nullptr;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Pass>> passes_;  ///< by batch and time
  std::unique_ptr<SequenceState> states_;
  std::vector<std::byte> copied_;
  std::vector<double> logits_;
};

}  // namespace tenon::generate
