// The graph of a configuration's model, built as a run builds it on one rank, without weights and without
// training: for `tenon graph`, the page of a run and the sizes of a ladder; or inferred alone, for totals.
// With model parallelism the shapes are those of whole tensors.
#pragma once

#include "ab/ladder_stage.hpp"
#include "config/run_schema.hpp"
#include "offline_host.hpp"
#include "report/model_graph.hpp"
#include "report/model_shapes.hpp"

#include <tenon/registry.hpp>
#include <tenon/stored_model.hpp>

#include <vector>

namespace tenon::cli {

/// Opens the data set of `checked`, whose fields and attributes the model is built for. Throws Error(kConfig)
/// as a run would.
report::ModelGraph read_model_graph(Registry& registry, config::CheckedRun& checked);

/// Totals of a configuration's language model. Reads [model] and [precision], and `context` of [data] where
/// the model has none; opens no data and allocates no tensor. Throws Error(kConfig).
report::ModelShapes model_shapes(Registry& registry, const Config& config);

/// Parameters of a graph, by name ascending, without memory. Throws Error(kConfig) as a run would.
std::vector<StoredTensor> model_parameters(Registry& registry, OfflineHost& host, const GraphSpec& graph,
                                           const DataInfo& data);

/// Parameters of a configuration's model, and what its data give in a slot of a run. Throws Error(kConfig).
ab::ModelSize model_size(const Config& config);

}  // namespace tenon::cli
