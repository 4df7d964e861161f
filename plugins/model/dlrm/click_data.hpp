// Requirements of this plugin's models for click-through data, the set-up of their tables, and the nodes that
// end each of them.
#pragma once

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <vector>

namespace tenon::dlrm {

inline constexpr const char* kModes[] = {"sum", "mean", nullptr};
inline constexpr const char* kPlacements[] = {"replicated", "rows", "tables", nullptr};

inline constexpr OptionSpec kRows = option::integers("rows", nullptr)
                                        .between(1, 2147483647)
                                        .doc_text("rows of each table; absent: the data's 'rows.<i>'");
inline constexpr OptionSpec kRowCap =
    option::integer("row_cap", nullptr)
        .between(1, 2147483647)
        .doc_text("no table has more rows than this; the data must keep its ids below it");
inline constexpr OptionSpec kMode =
    option::text("mode", "\"sum\"").one_of(kModes).doc_text("how the rows of a bag are pooled");
inline constexpr OptionSpec kPlacement =
    option::text("placement", "\"replicated\"")
        .one_of(kPlacements)
        .doc_text("each replica has all tables, a range of rows of each, or some whole tables");

/// The fields `dense`, `ids` and `labels`, checked, and the rows of the tables.
struct ClickData {
  std::int64_t dense = 0;          ///< columns
  std::vector<std::int64_t> rows;  ///< one per table
  bool planted = false;            ///< the data knows the true logits

  std::int64_t tables() const { return static_cast<std::int64_t>(rows.size()); }
};

/// Throws Error(kConfig) where `data` or the options `rows` and `row_cap` do not fit; `model` is named there.
ClickData click_data(const Options& options, const DataInfo& data, std::string_view model);

/// The node `emb`, tables of `width`.
NodeSpec tables_node(const Options& options, const ClickData& data, std::int64_t width);
/// The loss and the metrics of the value `logit`, and those of the true logits where the data has them.
void finish(GraphSpec& graph, const std::string& logit, const ClickData& data);

}  // namespace tenon::dlrm
