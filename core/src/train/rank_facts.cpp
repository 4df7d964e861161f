// What a rank knows of itself: for its manifest and for `tenon check`.
#include "plugin/sha256.hpp"
#include "train/grid.hpp"
#include "train/rank.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::train {
namespace {

std::int64_t arena_bytes(const ParameterSet& set) {
  std::int64_t sum = 0;
  for (int arena = 0; arena < set.arenas(); ++arena) sum += set.arena(arena).bytes();
  return sum;
}

double megabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

}  // namespace

Manifest Rank::describe() const {
  const config::RunSettings& run = world_.settings.run;
  Manifest manifest =
      begin_manifest(world_.request.command_line, std::max<std::int64_t>(world_.restored_slot, 0));
  manifest.cpu_features = parts_->device->features();
  manifest.kernels = parts_->device->kernel_choice();
  manifest.device_choice = world_.device_choice;
  manifest.ranks = static_cast<int>(world_.settings.parallel.world());
  manifest.threads = world_.threads_per_rank();
  if (world_.recorded_costs) {
    const PieceSeconds& costs = *world_.recorded_costs;
    manifest.calibration = {{"forward_seconds", costs.forward},
                            {"backward_seconds", costs.backward},
                            {"optimizer_seconds", costs.update},
                            {"mix_seconds", costs.mix}};
  }
  manifest.seed = run.seed;
  manifest.seed_init = run.seed_init;
  manifest.seed_order = run.seed_order;
  manifest.seed_rounding = run.seed_rounding;
  manifest.config_sha256 = plugin::file_sha256(world_.folder.path + "/config.resolved.toml");
  manifest.data = parts_->dataset->info().sources;
  return manifest;
}

std::vector<ParameterInfo> Rank::row_tables() const {
  std::vector<ParameterInfo> tables;
  for (const ParameterInfo& info : weights_->live().parameters()) {
    if (info.spec.role == Role::kRowTable) tables.push_back(info);
  }
  return tables;
}

void Rank::add_table_facts(std::vector<std::string>& lines) const {
  const std::vector<ParameterInfo> tables = row_tables();
  if (tables.empty()) return;
  std::int64_t rows = 0;
  for (const ParameterInfo& info : tables) rows += info.spec.shape[0];
  lines.push_back(fmt::format("row tables: {} with {} rows; {:.1f} MiB with their state on this rank",
                              tables.size(), rows, megabytes(updater_->table_bytes())));
  for (int replica = 0; rows_->cut() && replica < weights_->replicas(); ++replica) {
    std::int64_t held = 0, bytes = 0, some = 0;
    for (const ParameterInfo& info : tables) {
      GridPlace place = mesh_->grid().place();
      place.replica = replica;
      const Shape local = local_part(info.spec, place).extents;
      held += local[0];
      bytes += dtype_bytes(info.spec.dtype, local.elements());
      some += local[0] > 0 ? 1 : 0;
    }
    lines.push_back(fmt::format("  replica {}: {} rows of {} tables, {:.1f} MiB of weights", replica, held,
                                some, megabytes(bytes)));
  }
}

std::int64_t Rank::planned_bytes() const {
  std::int64_t sum =
      arena_bytes(weights_->live()) + arena_bytes(weights_->gradients()) + updater_->table_bytes();
  for (const auto& set : updater_->state()) sum += arena_bytes(*set);
  for (const auto& set : weights_->created_sets()) sum += arena_bytes(*set);
  for (const auto& worker : workers_) sum += worker->executor().allocated_bytes();
  if (keep() > 0) {
    for (const StateEntry& entry : state_->entries()) {
      if (!entry.written) continue;
      const RowTable* table = entry.table;
      // The copy that is written, and while it is made the rows of all tables beside.
      sum += table == nullptr ? entry.view.bytes()
                              : dtype_bytes(table->dtype(), 2 * (table->owned_last() - table->owned_first()) *
                                                                table->width());
    }
  }
  return sum;
}

std::vector<std::string> Rank::facts() const {
  std::vector<std::string> lines;
  std::int64_t trained = 0, frozen = 0, buffers = 0;
  for (const ParameterInfo& info : weights_->live().parameters()) {
    const std::int64_t elements = info.spec.shape.elements();
    (info.spec.role == Role::kBuffer ? buffers : info.spec.trainable ? trained : frozen) += elements;
  }
  lines.push_back(fmt::format("parameters: {} trained, {} frozen, {} in buffers", trained, frozen, buffers));
  std::int64_t state = 0;
  for (const auto& set : updater_->state()) state += arena_bytes(*set);
  lines.push_back(
      fmt::format("memory of a rank: weights {:.1f} MiB, gradients {:.1f} MiB, optimizer state {:.1f} MiB",
                  megabytes(arena_bytes(weights_->live())), megabytes(arena_bytes(weights_->gradients())),
                  megabytes(state)));
  add_table_facts(lines);
  for (const PlanLine& line : workers_[0]->executor().memory_plan()) {
    lines.push_back(
        fmt::format("  {}: {:.1f} MiB", line.what, megabytes(static_cast<std::int64_t>(line.bytes))));
  }
  lines.push_back(fmt::format("gradient buckets: {}", weights_->buckets().size()));
  const std::vector<std::string> kept = workers_[0]->executor().kept_sites();
  const auto sites = static_cast<std::size_t>(workers_[0]->executor().linear_sites());
  // Names where a choice was made; all of them say nothing.
  lines.push_back(fmt::format("linear sites in the activations' format: {} of {}{}{}", kept.size(), sites,
                              kept.empty() || kept.size() == sites ? "" : ", ",
                              kept.size() == sites ? "" : fmt::format("{}", fmt::join(kept, ", "))));
  lines.push_back(fmt::format("kernels: {}", parts_->device->kernel_choice()));
  return lines;
}

}  // namespace tenon::train
