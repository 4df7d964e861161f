// Rows of tables that are cut over the replicas, asked of their owners by one replica at a time
// ([parallel] rows = "request") instead of by all replicas together. The core carries requests to owners and
// answers back; what they hold is between a node and the same node on other replicas.
#pragma once

#include <tenon/parameter.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// The owner's side of a node's lookups.
class RowAnswerer {
 public:
  virtual ~RowAnswerer();
  /// Writes into `answer`, whose size the asker named, what `request` asks of this rank's rows. `tables` come
  /// in the order of RowService::offer; each read of them is whole rows, but not one moment of all. Called
  /// from several threads at once and while the node runs: it uses nothing that forward changes and waits for
  /// nobody. Throws Error(kRun) when request and answer do not fit together. Data is 4-byte aligned in
  /// requests and 8-byte aligned in answers if the asker's was.
  virtual void answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
                      std::span<std::byte> answer) const = 0;
};

/// What is asked of one replica; nothing where `request` is empty.
struct RowAsk {
  std::span<const std::byte> request;
  std::span<std::byte> answer;
};

/// Offered by a layer's host, InferContext::host().query(kId), where training reads rows on request; null
/// where replicas read them in step, over InferContext::replicas(). One per worker. Forwards that are
/// not training (evaluations) are in step either way: every replica runs as many.
class RowService {
 public:
  static constexpr const char* kId = "tenon.rows/1";
  virtual ~RowService();
  /// In infer: the node answers for its tables (names of parameters that are cut over the replicas). Returns
  /// its number for ask(). `answerer` lives as long as the node.
  virtual int offer(std::string_view node, std::span<const std::string> tables,
                    const RowAnswerer& answerer) = 0;
  /// In a forward that is training: asks[r] of replica r, this one included, which answers without a message.
  /// Returns when all have answered, with what rows were when each request came. Bytes count as Purpose
  /// kModel. Throws DeadlineError that names who is late.
  virtual void ask(int node, std::span<const RowAsk> asks) = 0;
};

TENON_ABI_END
