// Starts, watches and restarts rank processes (launched_run.hpp).
#include "launched_run.hpp"

#include "base/elapsed.hpp"
#include "control/control_endpoint.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>

namespace tenon::cli {
namespace {

/// Time in which the control plane may report why a process ended.
constexpr std::chrono::milliseconds kSaidWithin{1500};
constexpr std::chrono::milliseconds kPollEvery{20};

}  // namespace

LaunchedRun::LaunchedRun(const Share& share, const std::vector<std::string>& train,
                         LaunchListeners& listeners, int& restarts_used)
    : share_(share),
      train_(train),
      listeners_(listeners),
      restarts_used_(restarts_used),
      generation_(restarts_used) {
  if (share_.first == 0) server_ = serve(true);
  listeners_.server = server_.get();
  std::vector<RankProcess> all;
  for (int i = 0; i < share_.here; ++i) all.push_back(process_of(share_.first + i));
  processes_.emplace(share_.program, train_, all);
  listeners_.processes = &*processes_;
}

LaunchedRun::~LaunchedRun() {
  listeners_.server = nullptr;
  server_.reset();  // it may ask how a process ended
  listeners_.processes = nullptr;
}

std::unique_ptr<ControlServer> LaunchedRun::serve(bool first) {
  ControlServerSpec spec;
  spec.ranks = share_.world;
  spec.token = share_.token;
  spec.outlives_deaths = share_.restarts > 0;
  spec.how_it_ended = [this](int rank) {
    const RankProcesses* processes = listeners_.processes.load();
    return processes == nullptr ? std::string() : processes->how_it_ended(rank);
  };
  const bool given = first && !share_.control.empty();
  if (given) {
    spec.address = "0.0.0.0";
    spec.port = control_endpoint(share_.control).port;
  }
  auto server = std::make_unique<ControlServer>(std::move(spec));
  if (!given) share_.control = fmt::format("127.0.0.1:{}", server->port());
  return server;
}

RankProcess LaunchedRun::process_of(int rank) const {
  RankProcess process{
      rank,
      {fmt::format("TENON_RANK={}", rank), fmt::format("TENON_RANKS={}", share_.world),
       fmt::format("TENON_LOCAL_RANKS={}", share_.here), fmt::format("TENON_CONTROL={}", share_.control),
       fmt::format("TENON_TOKEN={}", share_.token), "TENON_LAUNCHED=1"}};
  if (share_.restarts > 0) process.environment.push_back(fmt::format("TENON_GENERATION={}", generation_));
  return process;
}

LaunchEnd LaunchedRun::run() {
  watch();
  LaunchEnd outcome;
  outcome.bad = processes_->first_bad_rank();
  await_reason(outcome.bad);
  if (server_) outcome.failure = server_->failed() ? server_->failure() : server_->interruption();
  outcome.status = std::max(server_ ? server_->failure_status() : 0, processes_->exit_status());
  outcome.spoke = processes_->spoke_for_itself(0);
  if (outcome.bad >= 0) {
    outcome.how = processes_->how_it_ended(outcome.bad);
    outcome.bad_spoke = processes_->spoke_for_itself(outcome.bad);
    outcome.last_words = processes_->last_words(outcome.bad);
  }
  return outcome;
}

/// Runs until all have ended; after a failure the remaining processes are killed when their time is over.
void LaunchedRun::watch() {
  while (!processes_->poll(kPollEvery)) {
    const bool failed = server_ != nullptr && server_->failed();
    if (server_ != nullptr && !failed && !server_->interruption().empty()) {
      outlive();
      continue;
    }
    const int bad = processes_->first_bad_rank();
    if (bad < 0 && !failed) continue;
    if (!bad_since_) bad_since_ = Steady::now();
    const auto passed = Steady::now() - *bad_since_;
    if (server_ != nullptr && bad >= 0 && !failed && passed > kSaidWithin) {
      const std::string how = processes_->how_it_ended(bad) + " without a word to the others";
      if (share_.restarts > 0) {
        server_->interrupt(bad, how);
      } else {
        server_->fail(bad, 1, how);
      }
    }
    if (base::seconds(passed) > share_.kill_after) processes_->kill_all();
  }
}

/// The run is interrupted: once every rank has ended or holds its state, the next generation begins.
void LaunchedRun::outlive() {
  if (restarts_used_ >= share_.restarts || listeners_.interrupted) return server_->give_up();
  if (!bad_since_) bad_since_ = Steady::now();
  const std::vector<int> held = server_->held();
  std::vector<int> dead, living, silent;
  for (int rank = share_.first; rank < share_.first + share_.here; ++rank) {
    const bool holds = std::find(held.begin(), held.end(), rank) != held.end();
    (processes_->ended(rank) ? dead : holds ? living : silent).push_back(rank);
  }
  if (silent.empty()) return living.empty() ? server_->give_up() : begin_generation(dead, living);
  // No rank may return later to a run that has continued without it.
  if (base::seconds_since(*bad_since_) <= share_.kill_after) return;
  for (const int rank : silent) processes_->kill(rank);
}

void LaunchedRun::begin_generation(const std::vector<int>& dead, const std::vector<int>& living) {
  ++restarts_used_;
  ++generation_;
  bad_since_.reset();
  began_ = began_ || server_->any_slot_begun();
  const std::string what =
      dead.empty() ? "no process has died"
                   : fmt::format("{} {} started again", ranks_text(dead), dead.size() == 1 ? "is" : "are");
  std::cerr << fmt::format("tenon launch: {}; {}, {} {} on ({} of {})\n", server_->interruption(), what,
                           ranks_text(living), living.size() == 1 ? "lives" : "live", restarts_used_,
                           share_.restarts);
  share_.token = random_control_token();
  std::unique_ptr<ControlServer> next = serve(false);
  listeners_.server = next.get();
  std::swap(next, server_);
  if (began_ && std::find(train_.begin(), train_.end(), "--resume") == train_.end())
    train_.emplace_back("--resume");
  next->go_on({generation_, share_.control, share_.token, began_});
  for (const int rank : dead) processes_->start_again(process_of(rank), train_);
}

/// A death that ended the run may not have been examined yet.
void LaunchedRun::await_reason(int bad) const {
  const auto until = Steady::now() + kSaidWithin;
  const auto known = [&] { return server_->failed() || !server_->interruption().empty(); };
  while (server_ != nullptr && bad >= 0 && !known() && Steady::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace tenon::cli
