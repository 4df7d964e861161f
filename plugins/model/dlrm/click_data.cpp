// Checks of the data, with messages that state what is there and what to change.
#include "click_data.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::dlrm {
namespace {

const DataField* find(const DataInfo& data, std::string_view name) {
  for (const DataField& field : data.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

/// The field of a name, which `fits` must accept; `wanted` describes the requirement.
const DataField& expect(const DataInfo& data, std::string_view model, const char* name, const char* wanted,
                        bool (*fits)(const DataField&)) {
  const DataField* field = find(data, name);
  if (field == nullptr) {
    std::vector<std::string> known;
    for (const DataField& other : data.fields) known.push_back(other.name);
    fail_config(
        fmt::format("model {} needs a data field '{}', {}; the data offers: {}; choose a [data] type of "
                    "click-through samples, such as synthetic_ctr",
                    model, name, wanted, fmt::join(known, ", ")));
  }
  if (!fits(*field)) {
    fail_config(fmt::format("model {}: data field '{}' must be {}, found {} {}", model, name, wanted,
                            dtype_name(field->dtype), field->shape.text()));
  }
  return *field;
}

/// Rows of table `index` according to the data, 0 if it does not say.
std::int64_t known_rows(const DataInfo& data, std::int64_t index) {
  const std::string name = fmt::format("rows.{}", index);
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return 0;
}

}  // namespace

ClickData click_data(const Options& options, const DataInfo& data, std::string_view model) {
  const DataField& dense = expect(data, model, "dense", "real numbers [columns]", [](const DataField& f) {
    return dtype_is_real(f.dtype) && f.shape.rank() == 1;
  });
  const DataField& ids =
      expect(data, model, "ids", "i32 row numbers [tables] or [tables, places]", [](const DataField& f) {
        return f.dtype == DType::kI32 && (f.shape.rank() == 1 || f.shape.rank() == 2) &&
               f.shape.elements() > 0;
      });
  expect(data, model, "labels", "one i32 per sample: 0, 1, or -1 for one that does not count",
         [](const DataField& f) { return f.dtype == DType::kI32 && f.shape.elements() == 1; });

  ClickData result;
  result.dense = dense.shape[0];
  const DataField* planted = find(data, "planted");
  result.planted = planted != nullptr && dtype_is_real(planted->dtype) && planted->shape.elements() == 1;
  const std::int64_t tables = ids.shape[0];
  if (options.has("rows")) {
    const auto rows = options.integers("rows");
    result.rows.assign(rows.begin(), rows.end());
    if (result.tables() != tables) {
      fail_config(fmt::format("model {}: option 'rows' lists {} tables, the data field 'ids' has {}", model,
                              result.tables(), tables));
    }
  }
  for (std::int64_t i = 0; i < tables; ++i) {
    const std::int64_t known = known_rows(data, i);
    if (!options.has("rows")) {
      if (known < 1) {
        fail_config(
            fmt::format("model {}: how many rows table {} of {} has is unknown, the data says no 'rows.{}'; "
                        "give the option 'rows'",
                        model, i, tables, i));
      }
      result.rows.push_back(known);
    }
    std::int64_t& rows = result.rows[static_cast<std::size_t>(i)];
    if (options.has("row_cap")) rows = std::min(rows, options.integer("row_cap"));
    if (rows < known) {
      fail_config(
          fmt::format("model {}: table {} has {} rows, but the data has ids up to {}; cap the ids in [data], "
                      "or raise 'rows' or 'row_cap' of [model]",
                      model, i, rows, known - 1));
    }
  }
  return result;
}

NodeSpec tables_node(const Options& options, const ClickData& data, std::int64_t width) {
  return {"emb",
          "embedding_bag",
          {"ids"},
          {{"rows", data.rows},
           {"width", width},
           {"mode", std::string(options.text("mode"))},
           {"placement", std::string(options.text("placement"))}}};
}

void finish(GraphSpec& graph, const std::string& logit, const ClickData& data) {
  graph.nodes.push_back({"loss", "bce_with_logits", {logit, "labels"}, {}});
  graph.nodes.push_back({"metrics", "ctr_metrics", {logit, "labels"}, {}});
  if (!data.planted) return;
  graph.nodes.push_back(
      {"ceiling", "ctr_metrics", {"planted", "labels"}, {{"prefix", std::string("planted")}}});
}

}  // namespace tenon::dlrm
