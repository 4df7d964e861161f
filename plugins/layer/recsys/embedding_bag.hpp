// Layer `embedding_bag`: all tables of a recommendation model at once. A bag of rows of each table is summed
// or averaged per sample; gradients are row-sparse. Replicas hold copies of the tables, shards of each, or
// whole tables each (Naumov et al. 2019, DLRM; sections 2 and 3).
#pragma once

#include "lookups.hpp"

#include <tenon/device.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/tier.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::recsys {

class EmbeddingBag final : public Layer, private RowLookups {
 public:
  static constexpr const char* kModes[] = {"sum", "mean", nullptr};
  enum class Placement : std::uint8_t { kReplicated, kRows, kTables };
  static constexpr auto kPlacements = option::choice<Placement>(
      {{"replicated", Placement::kReplicated}, {"rows", Placement::kRows}, {"tables", Placement::kTables}});
  static constexpr OptionSpec kOptions[] = {
      option::integers("rows", nullptr).mandatory().between(1, 2147483647).doc_text("rows of each table"),
      option::integer("width", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("elements of a row, in all tables"),
      option::text("mode", "\"sum\"")
          .one_of(kModes)
          .doc_text("what becomes of the rows of a bag; an empty bag is zero in both"),
      option::text("placement", "\"replicated\"")
          .one_of(kPlacements)
          .doc_text("with several replicas: a copy on each; even parts of every table; or whole tables, the "
                    "largest first to the replica with the least load"),
      option::real("init_scale", nullptr)
          .at_least(0)
          .doc_text("half-width of the uniform initial rows; absent: 1 / sqrt(rows) of each table"),
  };
  static constexpr PortSpec kPorts[] = {port::input("ids", "[batch, tables, ...]")
                                            .of("i32")
                                            .doc_text("with a length as third dimension: that many per bag"),
                                        port::output("y", "[batch, tables, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "embedding_bag",
                                       .summary = "pooled rows of learned tables, with row-sparse gradients",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit EmbeddingBag(const Options& options);
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == RowLookups::kId ? static_cast<RowLookups*>(this) : nullptr;
  }

 private:
  bool looks_up_by(int index) const override { return index == 0; }
  void lookups(std::span<const TensorView> inputs, const Visit& visit) override;
  void read_shape(InferContext& context);
  void declare_tables(InferContext& context, Communicator* replicas);
  void join_service(InferContext& context);
  void report_placement(InferContext& context, int replicas) const;
  std::string table_name(std::size_t table) const;
  void check_ids(std::span<const std::int32_t> ids) const;
  /// Sets table_pointers_ and device_rows_, and returns how many tables the device has itself.
  std::size_t find_tables(ForwardContext& context);
  /// Sums the bags of tables that the device does not have.
  template <class Real>
  void sum_bags(std::span<const std::int32_t> ids, Reads reads, Real* sums);
  void pool_on_device(ForwardContext& context);
  template <class Real>
  void finish(std::span<const std::int32_t> ids, Real* sums, TensorView output) const;
  /// Ids, in host memory.
  std::span<const std::int32_t> ids(RunContext& context);
  /// The workspace, or memory of the host in its place.
  TensorView room(RunContext& context);
  template <class Real>
  void collect(BackwardContext& context);

  const Options& options_;
  std::span<const std::int64_t> rows_;
  bool mean_;
  Placement placement_;
  std::string name_;
  BagShape shape_;
  DType real_ = DType::kF32;
  std::vector<ParameterRef> tables_;
  std::vector<std::vector<std::int64_t>> offsets_;  ///< per table and replica; empty = every replica has all
  std::vector<const RowTable*> table_pointers_;
  std::vector<DeviceRows*> device_rows_;   ///< of each table; null: its rows are read by the host
  TableRowOps* rows_of_tables_ = nullptr;  ///< null: the device has none, or tables are sharded
  std::vector<std::int64_t> bag_begin_;    ///< of a table's bags in a gathered list: 0, length, 2 length, ...
  WorkspaceRef sums_;
  Device* device_ = nullptr;
  HostStage ids_on_host_, sums_on_host_, values_on_host_;  ///< where the device has memory of its own
  std::unique_ptr<Lookups<float>> lookups_;
  std::unique_ptr<Lookups<double>> wide_lookups_;
  RowService* service_ = nullptr;  ///< null: rows of other replicas are read in step
  std::unique_ptr<RowLookupHandler> answers_;
  int node_ = -1;                           ///< of the service
  std::vector<std::int64_t> gradient_ids_;  ///< [tables, batch * length], packed from the left
  std::vector<std::int64_t> gradient_counts_;
  std::vector<std::int64_t> looked_up_;  ///< of lookups() alone
};

}  // namespace tenon::recsys
