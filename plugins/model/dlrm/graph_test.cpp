// The graphs that both models write, and their refusals of data and options that cannot work.
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::testing::graph_test {
namespace {

DataInfo clicks(std::int64_t dense, const Shape& ids, const std::vector<std::int64_t>& rows,
                bool planted = false) {
  DataInfo data;
  data.fields = {{"dense", DType::kF32, {dense}}, {"ids", DType::kI32, ids}, {"labels", DType::kI32, {}}};
  if (planted) data.fields.push_back({"planted", DType::kF32, {}});
  for (std::size_t i = 0; i < rows.size(); ++i)
    data.attributes.push_back({"rows." + std::to_string(i), rows[i]});
  return data;
}

std::string text(const OptionValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* word = std::get_if<std::string>(&value)) return *word;
  if (const auto* real = std::get_if<double>(&value)) return std::to_string(*real).substr(0, 5);
  std::string list;
  for (const std::int64_t number : std::get<std::vector<std::int64_t>>(value))
    list += std::to_string(number) + " ";
  return list;
}

/// One line per node: "name = type(inputs) option=value ...".
std::string text(const GraphSpec& graph) {
  std::string all;
  for (const NodeSpec& node : graph.nodes) {
    all += node.name + " = " + node.type + "(";
    for (const std::string& input : node.inputs) all += (&input == &node.inputs[0] ? "" : ", ") + input;
    all += ")";
    for (const NamedOption& option : node.options) all += " " + option.name + "=" + text(option.value);
    all += "\n";
  }
  return all;
}

class ClickModels : public ::testing::Test {
 protected:
  GraphSpec build(const std::string& model, const std::string& options, const DataInfo& data) {
    return bench_.make_component<Model>(model, options)->build(data);
  }
  Bench bench_{"cpu", "auto", 1};
};

TEST_F(ClickModels, DlrmWritesItsChain) {
  EXPECT_EQ(text(build("dlrm", "bottom = [8, 4]\ntop = [6, 1]", clicks(14, {3}, {10, 20, 30}))),
            // Deviations: sqrt(2 / (14 + 8)), sqrt(1 / 8); ...; the top reads 4 + 4 * 3 / 2 = 10 columns.
            "bottom.0 = linear(dense) features=8 init_scale=0.301 bias_init_scale=0.353\n"
            "bottom.0.act = relu(bottom.0)\n"
            "bottom.1 = linear(bottom.0.act) features=4 init_scale=0.408 bias_init_scale=0.500\n"
            "bottom.1.act = relu(bottom.1)\n"
            "emb = embedding_bag(ids) rows=10 20 30  width=4 mode=sum placement=replicated\n"
            "interaction = dot_interaction(bottom.1.act, emb)\n"
            "top.0 = linear(interaction) features=6 init_scale=0.353 bias_init_scale=0.408\n"
            "top.0.act = relu(top.0)\n"
            "top.1 = linear(top.0.act) features=1 init_scale=0.534 bias_init_scale=1.000\n"
            "loss = bce_with_logits(top.1, labels)\n"
            "metrics = ctr_metrics(top.1, labels)\n");
}

TEST_F(ClickModels, DlrmFollowsItsOptions) {
  const std::string graph = text(build("dlrm",
                                       "bottom = [4]\ntop = [1]\nitself = true\nmode = \"mean\"\nplacement = "
                                       "\"rows\"\nrows = [10, 20]\nrow_cap = 15",
                                       clicks(2, {2, 7}, {}, true)));
  EXPECT_THAT(graph, ::testing::HasSubstr("rows=10 15  width=4 mode=mean placement=rows"));
  EXPECT_THAT(graph, ::testing::HasSubstr("interaction = dot_interaction(bottom.0.act, emb) itself=true\n"
                                          // 4 + 3 * 4 / 2 = 10 columns: sqrt(2 / 11).
                                          "top.0 = linear(interaction) features=1 init_scale=0.426"));
  EXPECT_THAT(graph, ::testing::EndsWith("ceiling = ctr_metrics(planted, labels) prefix=planted\n"));
  EXPECT_THAT(text(build("dlrm", "bottom = [4]\ntop = [1]\ninteraction = \"cat\"", clicks(2, {2}, {9, 9}))),
              // 4 + 2 * 4 columns: sqrt(2 / 13).
              ::testing::HasSubstr("interaction = cat_interaction(bottom.0.act, emb)\n"
                                   "top.0 = linear(interaction) features=1 init_scale=0.392"));
}

TEST_F(ClickModels, LogisticRegressionIsASum) {
  EXPECT_EQ(text(build("logistic_regression", "", clicks(3, {2}, {10, 20}))),
            "dense_logit = linear(dense) features=1 init_scale=0.000\n"
            "emb = embedding_bag(ids) rows=10 20  width=1 mode=sum placement=replicated init_scale=0.000\n"
            "logit = sum_interaction(dense_logit, emb)\n"
            "loss = bce_with_logits(logit, labels)\n"
            "metrics = ctr_metrics(logit, labels)\n");
}

TEST_F(ClickModels, RefuseWhatCannotWork) {
  DataInfo text_data, no_dense = clicks(2, {2}, {9, 9}), no_labels = no_dense, real_ids = no_dense;
  text_data.fields = {{"tokens", DType::kI32, {8}}, {"targets", DType::kI32, {8}}};
  no_dense.fields.erase(no_dense.fields.begin());
  no_labels.fields.pop_back();
  real_ids.fields[1].dtype = DType::kF32;
  const DataInfo good = clicks(2, {2}, {9, 9});
  const struct {
    const char *model, *options;
    DataInfo data;
    const char* says;
  } cases[] = {
      {"dlrm", "", text_data,
       "model dlrm needs a data field 'dense', real numbers [columns]; the data offers: tokens, targets; "
       "choose a [data] type of click-through samples, such as synthetic_ctr"},
      {"logistic_regression", "", no_dense, "model logistic_regression needs a data field 'dense'"},
      {"dlrm", "", no_labels,
       "model dlrm needs a data field 'labels', one i32 per sample: 0, 1, or -1 for one that does not count"},
      {"dlrm", "", real_ids,
       "model dlrm: data field 'ids' must be i32 row numbers [tables] or [tables, places], found f32 [2]"},
      {"dlrm", "", clicks(2, {2}, {9}),
       "model dlrm: how many rows table 1 of 2 has is unknown, the data says no 'rows.1'; give the option "
       "'rows'"},
      {"dlrm", "rows = [9, 9, 9]", good,
       "model dlrm: option 'rows' lists 3 tables, the data field 'ids' has 2"},
      {"dlrm", "rows = [9, 8]", good,
       "model dlrm: table 1 has 8 rows, but the data has ids up to 8; cap the ids in [data], or raise 'rows' "
       "or "
       "'row_cap' of [model]"},
      {"logistic_regression", "row_cap = 5", good,
       "model logistic_regression: table 0 has 5 rows, but the data has ids up to 8"},
      {"dlrm", "top = [64, 2]", good, "model dlrm: option 'top' must end in 1, the logit, found [64, 2]"},
      {"dlrm", "top = []", good, "model dlrm: option 'top' must end in 1, the logit, found []"},
      {"dlrm", "bottom = []", good,
       "model dlrm: option 'bottom' needs at least one width, the last being that of the tables"},
      {"dlrm", "interaction = \"cat\"\nitself = true", good,
       "model dlrm: option 'itself' belongs to interaction = \"dot\", found interaction = \"cat\""},
      {"dlrm", "mode = \"max\"", good, "mode"},
      {"dlrm", "placement = \"columns\"", good, "placement"},
      {"dlrm", "rows = [0, 9]", good, "rows"},
  };
  for (const auto& c : cases) {
    try {
      build(c.model, c.options, c.data);
      ADD_FAILURE() << "accepted; expected an error that says: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(c.says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing::graph_test
