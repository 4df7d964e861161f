// Requests of one client come one after another (row_server.hpp). Buffers only grow, to twice what a request
// needs: rows differ from slot to slot, and a steady one must not ask the heap.
#include "loop/row_server.hpp"

#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {
namespace {

/// Longest silence of a client: longer than evaluations, saves and slots of any length.
constexpr double kClientSilenceSeconds = 24.0 * 3600;
/// Room for a request's bytes from the beginning.
constexpr std::size_t kLeastBytes = 4096;

}  // namespace

class RowServer::Guarded final : public RowTable {
 public:
  explicit Guarded(RowTable& table) : table_(table) {}
  std::mutex& mutex() { return mutex_; }
  std::int64_t rows() const override { return table_.rows(); }
  std::int64_t width() const override { return table_.width(); }
  DType dtype() const override { return table_.dtype(); }
  std::int64_t owned_first() const override { return table_.owned_first(); }
  std::int64_t owned_last() const override { return table_.owned_last(); }
  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    const std::lock_guard lock(mutex_);
    table_.read(ids, out);
  }
  void write(std::span<const std::int64_t> ids, TensorView values) override {
    const std::lock_guard lock(mutex_);
    table_.write(ids, values);
  }
  void scan(std::span<const std::int64_t> ids, TensorView out) const override {
    const std::lock_guard lock(mutex_);
    table_.scan(ids, out);
  }
  void fill(std::span<const std::int64_t> ids, TensorView values) override {
    const std::lock_guard lock(mutex_);
    table_.fill(ids, values);
  }
  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    table_.versions(ids, out);
  }

 private:
  RowTable& table_;
  mutable std::mutex mutex_;
};

RowServer::RowServer(const RowServerSpec& spec)
    : spec_(spec), gate_(*spec.host.clock, spec.host.deadline_s), host_(spec.host, gate_) {}

RowServer::~RowServer() = default;

int RowServer::offer(std::string_view node, std::span<const std::string> tables,
                     const RowLookupHandler& handler) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].name == node) return static_cast<int>(i);
  }
  const GuardContext* const layer = current_plugin_call();
  nodes_.push_back({std::string(node),
                    {tables.begin(), tables.end()},
                    &handler,
                    layer == nullptr ? "" : std::string(layer->plugin),
                    layer == nullptr ? std::string(node) : std::string(layer->component),
                    {}});
  return static_cast<int>(nodes_.size()) - 1;
}

void RowServer::open(ParameterSet& live, Updater& updater) {
  updater_ = &updater;
  for (const ParameterInfo& info : live.parameters()) {
    if (!is_sharded(info.spec, kReplicaAxis)) continue;
    tables_.push_back(
        {info.index, info.spec.name, info.spec.shape[1], info.spec.dtype, info.spec.sharding.at(0).offsets});
  }
  // In messages values of 8 bytes come first, so that all of them are aligned.
  std::stable_sort(tables_.begin(), tables_.end(),
                   [](const Table& a, const Table& b) { return dtype_bits(a.dtype) > dtype_bits(b.dtype); });
  for (const Table& table : tables_)
    guarded_.push_back(std::make_unique<Guarded>(*live.table(table.parameter)));
  std::vector<bool> answered(tables_.size());
  for (Node& node : nodes_) {
    for (const std::string& name : node.names) {
      const auto found = std::find_if(tables_.begin(), tables_.end(),
                                      [&](const Table& table) { return table.name == name; });
      if (found == tables_.end())
        fail_plugin(fmt::format("layer '{}' answers for '{}', which is not a table sharded over the replicas",
                                node.name, name));
      const std::size_t at = found - tables_.begin();
      answered[at] = true;
      node.tables.push_back(guarded_[at].get());
    }
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (answered[t]) continue;
    fail_config(
        fmt::format("parallel.rows = \"request\": the layer of row table '{}' reads rows in step only; "
                    "set parallel.rows = \"step\"",
                    tables_[t].name));
  }
}

void RowServer::start() {
  const auto open = [&](int client, int worker, const char* what, Purpose purpose) {
    const int owner = spec_.host.rank, other = spec_.peers[client];
    const int members[] = {other, owner};
    const std::string name = row_pair_name(what, other, worker, owner);
    return spec_.transport->open(owner, {members, name, purpose, spec_.epoch, kClientSilenceSeconds});
  };
  const auto replicas = static_cast<int>(spec_.peers.size());
  for (int client = 0; client < replicas; ++client) {
    for (int worker = 0; worker < spec_.workers && client != spec_.replica; ++worker) {
      Session& session = sessions_.emplace_back();
      session.client = client;
      session.worker = worker;
      session.pair = {open(client, worker, "lookups", Purpose::kModel),
                      open(client, worker, "gradients", Purpose::kGradient)};
    }
  }
  for (Session& session : sessions_) {
    const std::string name = fmt::format("rows for worker {} of replica {}", session.worker, session.client);
    actors_.push_back(host_.spawn(name, [this, &session](Actor&) {
      set_parallel_threads(1);  // many of them share the machine
      serve(session);
    }));
  }
}

void RowServer::stop() {
  for (const auto& actor : actors_) actor->stop();
}

LinkCounts RowServer::waits(Purpose purpose) const {
  LinkCounts sum;
  for (const Session& session : sessions_) {
    const Communicator* pair = purpose == Purpose::kModel      ? session.pair.lookups.get()
                               : purpose == Purpose::kGradient ? session.pair.gradients.get()
                                                               : nullptr;
    if (pair == nullptr) continue;
    const LinkCounts counts = pair->counts();
    sum.blocked_seconds += counts.blocked_seconds;
    sum.late_seconds += counts.late_seconds;
    sum.transfer_seconds += counts.transfer_seconds;
  }
  return sum;
}

void RowServer::serve(Session& session) {
  while (true) {
    RowHeader header;
    session.pair.lookups->receive(header_view(header), kClient, kRowTag);
    switch (header.message) {
      case RowMessage::kLookup:
        look_up(session, header);
        break;
      case RowMessage::kUpdate:
        apply(session, header);
        break;
      case RowMessage::kFlush:
        session.pair.lookups->send(header_view(header), kClient, kRowTag);
        break;
      case RowMessage::kBye:
        return;
      default:
        fail_run(
            fmt::format("worker {} of replica {} sent an invalid row message {}; do all ranks run one build?",
                        session.worker, session.client, static_cast<int>(header.message)));
    }
  }
}

void RowServer::look_up(Session& session, const RowHeader& header) {
  const bool known = header.node >= 0 && header.node < static_cast<std::int32_t>(nodes_.size());
  if (!known || header.bytes < 0 || header.answer_bytes < 0) {
    fail_run(fmt::format(
        "worker {} of replica {} asks node {} of {} for rows, with {} bytes for {}; do all ranks run "
        "one build?",
        session.worker, session.client, header.node, nodes_.size(), header.bytes, header.answer_bytes));
  }
  if (watch_ != nullptr) watch_->looks_up(session.client, header.place.slot, header.place.position);
  resize_with_room(session.request, static_cast<std::size_t>(header.bytes), kLeastBytes);
  resize_with_room(session.reply, static_cast<std::size_t>(header.answer_bytes), kLeastBytes);
  session.pair.lookups->receive(flat_view(session.request, DType::kU8), kClient, kRowTag);
  answer(header.node, session.request, session.reply);
  session.pair.lookups->send(flat_view(session.reply, DType::kU8), kClient, kRowTag);
}

void RowServer::apply(Session& session, const RowHeader& header) {
  if (header.bytes < 0) {
    fail_run(fmt::format("worker {} of replica {} announces {} bytes of row gradients", session.worker,
                         session.client, header.bytes));
  }
  resize_with_room(session.gradients, static_cast<std::size_t>(header.bytes), kLeastBytes);
  session.pair.gradients->receive(flat_view(session.gradients, DType::kU8), kClient, kRowTag);
  UpdateContext context;
  context.lr = header.update.lr;
  context.count = header.update.count;
  context.gradient_scale = header.update.gradient_scale;
  std::byte* at = session.gradients.data();
  const auto* rows = reinterpret_cast<const std::int64_t*>(at);
  std::size_t expected = tables_.size() * sizeof(std::int64_t);
  at += expected;
  std::int64_t all = 0;
  std::size_t values = 0;
  bool negative = false;
  for (std::size_t t = 0; t < tables_.size() && session.gradients.size() >= expected; ++t) {
    negative = negative || rows[t] < 0;
    all += rows[t];
    values += static_cast<std::size_t>(rows[t]) * tables_[t].row_bytes();
  }
  expected += static_cast<std::size_t>(all) * (sizeof(std::int64_t) + sizeof(std::uint32_t)) + values;
  if (negative || session.gradients.size() != expected) {
    fail_run(
        fmt::format("row gradients of worker {} of replica {} have {} bytes, expected {} for {} rows of {} "
                    "tables; do all ranks run one build?",
                    session.worker, session.client, session.gradients.size(), expected, all, tables_.size()));
  }
  const auto* ids = reinterpret_cast<const std::int64_t*>(at);
  std::byte* value = at + all * sizeof(std::int64_t);
  const auto* counts = reinterpret_cast<const std::uint32_t*>(value + values);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t count = rows[t];
    if (count == 0) continue;
    TensorView gradients;
    gradients.data = value;
    gradients.dtype = tables_[t].dtype;
    gradients.shape = Shape{rows[t], tables_[t].width};
    update(context, t, {tables_[t].parameter, {ids, count}, gradients, {counts, count}});
    ids += count;
    counts += count;
    value += count * tables_[t].row_bytes();
  }
}

void RowServer::answer(int node, std::span<const std::byte> request, std::span<std::byte> answer) const {
  const Node& asked = nodes_.at(node);
  guard({asked.plugin, asked.component, spec_.host.rank, host_.slot()},
        [&] { asked.handler->answer(request, asked.tables, answer); });
}

void RowServer::update(const UpdateContext& context, std::size_t table, const RowGradient& rows) {
  {
    const std::lock_guard lock(guarded_[table]->mutex());
    updater_->apply_rows(context, rows);
  }
  const std::lock_guard lock(accesses_mutex_);
  accesses_.parts.push_back({rows.parameter, rows.ids.size()});
  accesses_.ids.insert(accesses_.ids.end(), rows.ids.begin(), rows.ids.end());
  accesses_.counts.insert(accesses_.counts.end(), rows.counts.begin(), rows.counts.end());
}

void RowServer::take_accesses(const std::function<void(const RowGradient&)>& body) {
  {
    const std::lock_guard lock(accesses_mutex_);
    std::swap(accesses_, taken_);
    accesses_.parts.clear();
    accesses_.ids.clear();
    accesses_.counts.clear();
  }
  std::size_t at = 0;
  for (const Accesses::Part& part : taken_.parts) {
    body({part.parameter,
          std::span(taken_.ids).subspan(at, part.rows),
          {},
          std::span(taken_.counts).subspan(at, part.rows)});
    at += part.rows;
  }
}

}  // namespace tenon::train
