// Parameter sets and communicators of a replica.
#include "loop/replica.hpp"

#include "loop/traced_communicator.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/elementwise.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {
BucketPlan plan_buckets(const ParameterSet& gradients, const BucketCaps& caps) {
  BucketPlan plan;
  const auto parameters = gradients.parameters();
  plan.bucket_of.assign(parameters.size(), -1);
  std::int64_t open_end = 0;
  for (const ParameterInfo& info : parameters) {
    if (gradients.tensor(info.index).empty()) continue;
    const TensorView arena = gradients.arena(info.arena);
    const std::int64_t end = info.begin + info.local.elements();
    const bool same_arena = !plan.buckets.empty() && plan.buckets.back().arena == info.arena;
    const std::int64_t cap = plan.buckets.size() <= 1 ? caps.first : caps.others;
    if (!same_arena || plan.buckets.back().gradients.bytes() >= cap) {
      Bucket bucket;
      bucket.index = static_cast<int>(plan.buckets.size());
      bucket.arena = info.arena;
      bucket.begin = same_arena ? open_end : 0;
      bucket.gradients = arena;
      plan.buckets.push_back(bucket);
      plan.parameters.push_back(0);
    }
    Bucket& bucket = plan.buckets.back();
    bucket.gradients.data = static_cast<std::byte*>(arena.data) + dtype_bytes(arena.dtype, bucket.begin);
    bucket.gradients.shape = Shape{end - bucket.begin};
    open_end = end;
    plan.bucket_of[info.index] = bucket.index;
    ++plan.parameters.back();
  }
  return plan;
}

RankReplica::RankReplica(const ReplicaSpec& spec, const std::vector<ParameterInfo>& parameters)
    : spec_(spec),
      parameters_(parameters),
      live_(make_parameter_set("live", parameters_, *spec.device, SetContents::kEverything, spec.places)),
      gradients_(make_parameter_set("gradients", parameters_, *spec.device, SetContents::kGradients)),
      plan_(plan_buckets(*gradients_, spec.buckets)) {}

RankReplica::~RankReplica() = default;

std::unique_ptr<Communicator> RankReplica::open(std::string_view name, Purpose purpose) {
  if (spec_.transport == nullptr) {
    fail_config(fmt::format(
        "'{}' needs peers, but this run has one replica; set [parallel] ranks to 2 or more", name));
  }
  const std::string full = fmt::format("{}#{}", name, spec_.mesh_index);
  auto opened = spec_.transport->open(spec_.host->rank(), {spec_.peers, full, purpose, spec_.epoch});
  return traced(for_device(std::move(opened), *spec_.transport, *spec_.device), spec_.watch, spec_.peers,
                name);
}

std::unique_ptr<Communicator> RankReplica::open_to_server(int server, std::string_view name,
                                                          Purpose purpose) {
  if (server < 0 || server >= spec_.servers) {
    fail_config(fmt::format("'{}' needs server {}, but this run has {}; set [parallel] servers", name, server,
                            spec_.servers));
  }
  const std::vector<int> members = {spec_.host->rank(), spec_.first_server + server};
  auto opened =
      spec_.transport->open(spec_.host->rank(), {members, pair_name(name), purpose, spec_.epoch, 0});
  return traced(for_device(std::move(opened), *spec_.transport, *spec_.device), spec_.watch, members, name);
}

Communicator* RankReplica::group(Purpose purpose) {
  if (spec_.replicas == 1) return nullptr;
  auto& slot = groups_[static_cast<std::size_t>(purpose)];
  if (slot == nullptr) slot = open(fmt::format("replicas.{}", purpose_name(purpose)), purpose);
  return slot.get();
}

ParameterSet& RankReplica::create_set(std::string_view name) {
  for (const auto& set : created_) {
    if (set->name() == name) fail_plugin(fmt::format("create_set: there is a set named '{}' already", name));
  }
  created_.push_back(make_parameter_set_beside(std::string(name), *live_, *spec_.device));
  return *created_.back();
}

void RankReplica::copy(const ParameterSet& from, ParameterSet& to) {
  for (int arena = 0; arena < from.arenas(); ++arena) {
    if (!from.arena(arena).empty() && !to.arena(arena).empty())
      spec_.device->copy(from.arena(arena), to.arena(arena));
  }
  to.touch(-1);
}

void RankReplica::sync_buffers() {
  if (spec_.buffers == config::BufferPolicy::kLocal || spec_.replicas == 1) return;
  for (const ParameterInfo& info : parameters_) {
    const TensorView buffer = live_->tensor(info.index);
    if (info.spec.role != Role::kBuffer || buffer.empty()) continue;
    Communicator& statistics = *group(Purpose::kStatistics);
    // Counters and the like have no mean: all replicas take those of replica 0.
    if (spec_.buffers == config::BufferPolicy::kBroadcast || !dtype_is_real(buffer.dtype)) {
      statistics.broadcast(buffer, 0);
    } else {
      statistics.all_reduce(buffer, ReduceOp::kSum);
      spec_.device->family<Elementwise>().scale(buffer, 1.0 / spec_.replicas);
    }
    live_->touch(info.index);
  }
}

std::string pair_name(std::string_view name) {
  return fmt::format("server.{}", name);
}

}  // namespace tenon::train
