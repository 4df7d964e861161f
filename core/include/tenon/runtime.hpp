// The runtime: registry, one or many ranks as threads, the loop. `tenon train` is a thin shell around it, and
// programs and tests embed it the same way.
#pragma once

#include <tenon/plugin_abi.h>
#include <tenon/config.hpp>
#include <tenon/observer.hpp>
#include <tenon/transport.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

TENON_ABI_BEGIN

class Registry;

/// Place of this process among several that make one run, one rank each.
struct ProcessPlace {
  int rank = -1;               ///< -1: all ranks are threads of this process
  int ranks = 0;               ///< processes of the run
  int local_ranks = 1;         ///< of them on this machine; they share its processors
  std::string control;         ///< "host:port" of the control plane's server
  bool hosts_control = false;  ///< this process runs that server, on `control`
  std::string token;           ///< a word that all processes of the run know
  bool survives = false;       ///< the death of another process interrupts the run, which then goes on
  int generation = 0;          ///< how often that has happened
};

struct TrainRequest {
  std::string run_dir;  ///< in place of runs/<name>; "" = default
  bool resume = false;
  bool extend = false;          ///< with resume: another run.steps may plan the schedule anew
  bool accept_plugins = false;  ///< with resume: plugins may be others than those that trained so far
  bool quiet = false;
  /// 0 or more: the run computes again what another one did and ends after this slot, without an evaluation
  /// or a save there; no [[fault]] happens, and budgets of seconds and bytes do not end it.
  std::int64_t replay_to = -1;
  bool terminal = false;        ///< a person watches standard error
  bool handle_signals = false;  ///< SIGINT and SIGTERM become an agreed stop
  std::string command_line;     ///< for the manifest
  ProcessPlace place;
};

/// Time of the training thread of one rank, in seconds of the run's clock; the first seven add up to total_s.
struct RankTime {
  double compute_s = 0;   ///< forward, backward, update, and what the strategy computes
  double exposed_s = 0;   ///< waiting for bytes
  double late_s = 0;      ///< waiting for the last member of a collective to join
  double data_s = 0;      ///< reading batches
  double evaluate_s = 0;  ///< without its communication
  double save_s = 0;      ///< likewise: copying, and waiting for writers where the policy asks for it
  double generate_s = 0;  ///< samples that the model makes, without communication
  double other_s = 0;     ///< logs, observers, the loop itself
  double total_s = 0;
  double overlapped_s = 0;  ///< transfers beside other work, those of background actors included
  std::map<std::string, LinkCounts> purposes;  ///< traffic that left the rank, of all its threads
};

/// Numbers recorded under one name by all ranks (Replica::record).
struct Distribution {
  std::uint64_t count = 0;
  double mean = 0, least = 0, most = 0;
  /// Numbers in [2^e, 2^(e+1)) by e; those that are zero or below by themselves.
  std::map<int, std::uint64_t> octaves;
  std::uint64_t not_positive = 0;
};

/// Content of summary.json.
struct RunResult {
  std::string status;  ///< completed | interrupted | failed
  std::string error;   ///< first failure, "" when none
  int exit_status = 0;
  int rank = 0;  ///< of this process; what follows is complete on rank 0
  std::string folder;
  std::int64_t steps = 0, samples = 0, tokens = 0;
  double wall_s = 0, stall_s = 0, hidden_comm_share = 0, peak_rss_mb = 0;
  double peak_anonymous_mb = 0;  ///< peak_rss_mb without pages that files back
  std::uint64_t bytes_sent = 0;
  std::map<std::string, double> metrics;                  ///< last value of "train/loss", "val/loss", ...
  std::map<std::string, std::uint64_t> bytes_by_purpose;  ///< rank 0
  std::vector<RankTime> communication;                    ///< by rank; empty when a rank failed
  std::map<std::string, Distribution> distributions;
  std::map<std::string, std::int64_t> quantized_operands;
  std::string weights_hash, state_hash;
  std::string nondeterminism;  ///< why a repetition may differ, "" if it gives the same bits
};

class Runtime {
 public:
  Runtime();
  ~Runtime();
  /// Registers a plugin that is linked into this program (tests, embedded use).
  void add_plugin(const tenon_plugin_v1_t& plugin);
  /// Discovers plugins: `paths`, then TENON_PLUGIN_PATH, then the install folder. Reads tags only.
  void discover(const std::vector<std::string>& paths);
  Registry& registry();
  /// Resolves, validates and builds everything, trains nothing; returns the resolved configuration.
  /// `report` gets one line per fact (memory plan, parameters, unquantized sites) when not null.
  Config check(const Config& config, std::vector<std::string>* report);
  /// Runs to the end. Errors before the first slot throw; failures of the run come back in the result.
  RunResult train(const Config& config, const TrainRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TENON_ABI_END
