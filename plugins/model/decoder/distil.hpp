// [model.distil] of a `decoder`: nodes of a stored teacher and of losses that follow it, at the end of the
// training graph. What generates text and what leaves the run has none of them.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/model.hpp>
#include <tenon/options.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::decoder {

enum class DistilLoss : std::uint8_t { kLogits, kHidden, kTokens };
constexpr auto kDistilLosses = option::choice<DistilLoss>(
    {{"logits", DistilLoss::kLogits}, {"hidden", DistilLoss::kHidden}, {"tokens", DistilLoss::kTokens}});
constexpr const char* kDistilLossNames[] = {"logits", "hidden", "tokens", nullptr};
constexpr const char* kDistilForms[] = {"forward", "reverse", "top_k", nullptr};
constexpr const char* kDistilStates[] = {"mse", "normalised_mse", "cosine", nullptr};
constexpr const char* kDistilBalances[] = {"none", "equal", nullptr};

/// [model.distil], or [[model.distil]] for each of several teachers.
constexpr OptionSpec kDistilOptions[] = {
    option::path("teacher", nullptr)
        .mandatory()
        .doc_text("the stored teacher: folder of a run, an attempt, a stage (\"stage:NAME\"), or a model "
                  "folder"),
    option::integer("step", nullptr).at_least(0).doc_text("checkpoint of that slot; absent: the newest"),
    option::texts("losses", "[\"logits\"]")
        .one_of(kDistilLossNames)
        .doc_text("what is trained, as a sum: logits (divergence from the teacher's distribution), hidden "
                  "(distance of states inside), tokens (cross-entropy of the targets)"),
    option::reals("weights", nullptr).doc_text("factor of each of the losses; absent: 1 for all"),
    option::text("balance", "\"none\"")
        .one_of(kDistilBalances)
        .doc_text("of the layer add_losses; equal: each loss is made as large as the first"),
    option::text("form", "\"forward\"").one_of(kDistilForms).doc_text("of the layer distillation"),
    option::integer("top_k", nullptr).between(1, 16777216).doc_text("classes of the form top_k"),
    option::real("temperature", "1").between(1e-3, 1e3).doc_text("T, of both distributions"),
    option::boolean("scale_by_square", "true").doc_text("multiply the divergence by T^2"),
    option::text("hidden_loss", "\"mse\"").one_of(kDistilStates).doc_text("loss of the layer hidden_match"),
    option::boolean("project", "false")
        .doc_text("trained projections of the student's states, which other widths need"),
    option::texts("layers", nullptr)
        .doc_text(
            "pairs \"STUDENT:TEACHER\" of layers whose results are compared, or \"same\": equal numbers; "
            "absent: four of the student's, or all of fewer, each with the layer of its kind that is "
            "as deep in the teacher"),
    option::text("precision", nullptr)
        .doc_text("type of the policy of the teacher's products; absent: the run's, made anew"),
};

/// What the student's graph has, for the nodes that follow the teacher.
struct StudentEnd {
  std::string last;               ///< value that the head reads
  std::vector<NamedOption> head;  ///< options of the head
  std::int64_t vocabulary = 0;    ///< its rows
  /// Layers that are in the graph, in their order: number and kind ("attention", "ffn", ...).
  std::vector<std::pair<std::int64_t, std::string>> layers;
};

/// Appends head and losses. Throws Error(kConfig) where a teacher does not fit the student or the data.
void add_distillation(GraphSpec& graph, const Options& model, const StudentEnd& student, const DataInfo& data,
                      Host& host);

}  // namespace tenon::decoder
