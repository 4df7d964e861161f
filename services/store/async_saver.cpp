// Background saves. The training thread copies into one private buffer and goes on; the saver's thread writes
// from that buffer. Buffer, names and row lists are reused, so a steady run allocates nothing here on the
// training thread.
#include "base/elapsed.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/clock.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

TENON_ABI_BEGIN

struct AsyncSaver::State {
  using SteadyClock = std::chrono::steady_clock;

  State(CheckpointStore& to, int rank_, int world_, SaveExchange& exchange_, Copier copier_)
      : store(&to), rank(rank_), world(world_), exchange(exchange_), copier(std::move(copier_)) {}

  CheckpointStore* store;
  const int rank;
  const int world;
  SaveExchange& exchange;
  const Copier copier;

  // Written by the training thread while idle, read by the saver's thread while busy; `mutex` hands them
  // over.
  std::vector<std::byte> buffer;
  std::vector<SaveItem> items;
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<MetaBlock> meta;
  SaveRequest request;
  std::string copy_error;
  double copy_s = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool busy = false;
  bool stopping = false;
  std::vector<SaveResult> results;
  std::thread thread;

  void copy(const SaveRequest& from);
  void copy_bytes(const SaveItem& from, std::span<std::byte> to);
  void run();
  SaveResult persist();
};

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t stored_bytes(const SaveItem& item) {
  if (item.encoding != "plain") return item.payload.size();
  return item.data.bytes();
}

}  // namespace

void AsyncSaver::State::copy_bytes(const SaveItem& from, std::span<std::byte> to) {
  if (to.empty()) return;
  if (from.encoding != "plain") {
    std::memcpy(to.data(), from.payload.data(), to.size());
  } else if (copier) {
    copier(from.data, to);
  } else if (from.data.space != MemorySpace::kHost || from.data.data == nullptr) {
    fail_run("tensor '" + from.name + "' is not in host memory and the saver was given no copier");
  } else {
    std::memcpy(to.data(), from.data.data, to.size());
  }
}

void AsyncSaver::State::copy(const SaveRequest& from) {
  std::size_t total = 0;
  for (const SaveItem& item : from.items) total += aligned(stored_bytes(item));
  if (buffer.size() < total) buffer.resize(total);
  items.resize(from.items.size());
  rows.resize(from.items.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < from.items.size(); ++i) {
    const SaveItem& item = from.items[i];
    const std::span<std::byte> bytes(buffer.data() + used, stored_bytes(item));
    used += aligned(bytes.size());
    copy_bytes(item, bytes);
    SaveItem& mine = items[i];
    mine.name = item.name;
    mine.encoding = item.encoding;
    mine.global_shape = item.global_shape;
    mine.offset = item.offset;
    rows[i].assign(item.rows.begin(), item.rows.end());
    mine.rows = rows[i];
    mine.data = item.data;
    mine.data.space = MemorySpace::kHost;
    const bool plain = item.encoding == "plain";
    mine.data.data = plain ? bytes.data() : nullptr;
    mine.payload = plain ? std::span<const std::byte>() : std::span<const std::byte>(bytes);
  }
  meta.resize(from.meta.size());
  for (std::size_t i = 0; i < from.meta.size(); ++i) {
    meta[i].name = from.meta[i].name;
    meta[i].value = from.meta[i].value;
  }
  request = from;
  request.items = items;
  request.meta = meta;
}

SaveResult AsyncSaver::State::persist() {
  SaveResult result;
  try {
    if (copy_error.empty()) {
      result = store->save(request, rank, world, exchange);
    } else {
      // The others wait for this rank's report: one without a copy makes the coordinator abort everywhere.
      result = store->fail(request, rank, world, copy_error, exchange);
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  } catch (...) {
    result.error = "unknown exception while saving";
  }
  result.step = request.step;
  result.copy_s = copy_s;
  return result;
}

void AsyncSaver::State::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex);
      while (!busy && !stopping) changed.wait_for(lock, kLookAgain);
      if (!busy) return;
    }
    SaveResult result = persist();
    {
      const std::lock_guard lock(mutex);
      results.push_back(std::move(result));
      busy = false;
    }
    changed.notify_all();
  }
}

AsyncSaver::AsyncSaver(CheckpointStore& store, int rank, int world_size, SaveExchange& exchange,
                       Copier copier)
    : state_(std::make_unique<State>(store, rank, world_size, exchange, std::move(copier))) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

AsyncSaver::~AsyncSaver() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

bool AsyncSaver::save(const SaveRequest& request) {
  if (!ready(request.step)) return false;
  submit(request);
  return true;
}

bool AsyncSaver::ready(std::int64_t step) {
  if (!state_->exchange.any(busy())) return true;
  SaveResult skipped;
  skipped.status = SaveStatus::kSkipped;
  skipped.step = step;
  skipped.error = "an earlier save is still being written";
  const std::lock_guard lock(state_->mutex);
  state_->results.push_back(std::move(skipped));
  return false;
}

void AsyncSaver::submit(const SaveRequest& request) {
  const auto start = State::SteadyClock::now();
  state_->copy_error.clear();
  try {
    state_->store->phase("copy");
    state_->copy(request);
  } catch (const std::exception& error) {
    state_->copy_error = std::string("copy failed: ") + error.what();
    state_->request = request;
    state_->request.items = {};
    state_->request.meta = {};
  }
  state_->copy_s = base::seconds_since(start);
  {
    const std::lock_guard lock(state_->mutex);
    state_->busy = true;
  }
  state_->changed.notify_all();
}

void AsyncSaver::use(CheckpointStore& store) {
  state_->store = &store;
}

bool AsyncSaver::busy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->busy;
}

void AsyncSaver::wait(double seconds) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = State::SteadyClock::now();
  std::unique_lock lock(state_->mutex);
  for (double left = seconds; state_->busy && left > 0; left = seconds - base::seconds_since(begin))
    state_->changed.wait_for(lock, std::min<Seconds>(Seconds(left), kLookAgain));
  if (state_->busy) {
    throw DeadlineError("rank " + std::to_string(state_->rank) + " still writes the checkpoint of step " +
                        std::to_string(state_->request.step) + " after " + std::to_string(seconds) + " s");
  }
}

std::vector<SaveResult> AsyncSaver::take_results() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->results, {});
}

TENON_ABI_END
