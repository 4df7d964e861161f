// Search of a shape: every combination of lists of targets, its parameters and its memory by closed form,
// those within the bounds, and their order by loss. Pure functions; the transform measures the losses.
#pragma once

#include "plan.hpp"

#include <tenon/options.hpp>
#include <tenon/stored_model.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::minitron {

inline constexpr double kMostShape = 2147483647;

/// One table [[transform.search]].
inline constexpr OptionSpec kSearchOptions[] = {
    option::integers("width", "[]")
        .doc_text("channels of the residual stream to try; empty: the target, or all"),
    option::integers("hidden", "[]").doc_text("neurons of FFNs to try"),
    option::integers("heads", "[]").doc_text("query heads to try"),
    option::integers("kv_heads", "[]").doc_text("heads of keys and values to try"),
    option::integers("mamba_heads", "[]").doc_text("heads of Mamba layers to try"),
    option::integers("mamba_head_width", "[]").doc_text("elements of a Mamba head to try"),
    option::integers("keep_layers", "[]").doc_text("how many layers stay, to try"),
    option::integer("parameters", nullptr).at_least(1).doc_text("wanted, within the tolerance"),
    option::integer("memory", nullptr)
        .at_least(1)
        .in_unit("bytes")
        .doc_text("wanted of weights and what one sequence keeps, within the tolerance"),
    option::integer("memory_limit", nullptr)
        .at_least(1)
        .in_unit("bytes")
        .doc_text("that weights and what one sequence keeps may not exceed"),
    option::real("tolerance", "0.05").between(0, 1).doc_text("of parameters and memory, relative"),
    option::integer("context", "0")
        .between(0, kMostShape)
        .in_unit("tokens")
        .doc_text("of the sequence; 0 = that of the calibration data"),
};

struct Bounds {
  std::optional<std::int64_t> parameters, memory, memory_limit;
  double tolerance = 0.05;
  std::int64_t context = 0;

  bool any() const { return parameters || memory || memory_limit; }
};

/// Bytes of a model that goes on with one sequence.
struct ModelSize {
  std::int64_t parameters = 0, weight_bytes = 0;
  std::int64_t cache_bytes = 0;  ///< keys and values of attention at the context
  std::int64_t state_bytes = 0;  ///< recurrent states and tails of convolutions, whatever the context

  std::int64_t memory() const { return weight_bytes + cache_bytes + state_bytes; }
};

struct Candidate {
  Targets targets;
  ModelSize size;
  double loss = 0;  ///< on the calibration data, of the cut model before any training
};

/// `base` with every combination of the lists, the last list fastest. Throws Error(kConfig) for more than
/// 4,096 of them, for a list without anything to choose from, and for a target that a list names, too.
std::vector<Targets> combinations(const Options& search, const Targets& base);

Bounds read_bounds(const Options& search);

/// Throws Error(kConfig) that ends with `problem` where a value of a list is in none of the candidates.
void require_used(const Options& search, const std::vector<Candidate>& candidates,
                  const std::string& problem);

/// `parameters`: of the cut model; `graph`: its graph; `activation_bytes`: of an element that attention and
/// convolutions keep.
ModelSize size_of(std::span<const StoredTensor> parameters, const GraphSpec& graph, std::int64_t context,
                  std::int64_t activation_bytes);

/// How far outside of the bounds, relative; 0 inside.
double distance(const ModelSize& size, const Bounds& bounds);

/// The candidates within the bounds. Throws Error(kConfig) that names the nearest where there is none.
std::vector<Candidate> within(std::vector<Candidate> candidates, const Bounds& bounds);

/// What a search came to.
struct Searched {
  std::vector<Candidate> ranked;
  Bounds bounds;
  std::size_t enumerated = 0;  ///< shapes, whether possible or not
  std::size_t taken = 0;       ///< index into `ranked`
};

/// By loss, of equal ones the smaller first.
void rank(std::vector<Candidate>& candidates);

/// "width 64, hidden 192, 9 layers": what is set.
std::string shape_text(const Targets& targets);

/// about/search.json and about/search.svg.
std::string search_json(const Searched& found);
std::string search_svg(const Searched& found);

}  // namespace tenon::minitron
