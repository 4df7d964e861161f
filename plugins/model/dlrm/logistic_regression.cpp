// Model `logistic_regression`: all weights begin at zero, where the loss, which is convex, is easy to leave.
#include "logistic_regression.hpp"

namespace tenon::dlrm {

GraphSpec LogisticRegression::build(const DataInfo& data) {
  const ClickData clicks = click_data(options_, data, "logistic_regression");
  GraphSpec graph;
  graph.nodes.push_back(
      {"dense_logit", "linear", {"dense"}, {{"features", std::int64_t{1}}, {"init_scale", 0.0}}});
  graph.nodes.push_back(tables_node(options_, clicks, 1));
  graph.nodes.back().options.push_back({"init_scale", 0.0});
  graph.nodes.push_back({"logit", "sum_interaction", {"dense_logit", "emb"}, {}});
  finish(graph, "logit", clicks);
  return graph;
}

}  // namespace tenon::dlrm
