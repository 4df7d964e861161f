// Recovery `checknrun` (contract recovery/1): increments of the rows that changed, optionally quantised
// (Check-N-Run, NSDI 2022). Dense parameters and optimizer rows are written unchanged.
// This file has the content of each save, and the encodings of rows by name.
#include "dirty_rows.hpp"
#include "increments.hpp"
#include "row_quantiser.hpp"

#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace tenon::recovery_checknrun {

class CheckNRun final : public RecoveryBase,
                        public SaveSelector,
                        public RowCodec,
                        private IdentitiesOf<CheckNRun> {
 public:
  static constexpr auto kPolicies =
      option::choice<IncrementPolicy>({{"one_shot", IncrementPolicy::kOneShot},
                                       {"consecutive", IncrementPolicy::kConsecutive},
                                       {"intermittent", IncrementPolicy::kIntermittent}});
  static constexpr const char* kBits[] = {"none", "8", "4", "3", "2", "auto", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "100").at_least(1).in_unit("slots").doc_text("slots between checkpoints"),
      option::text("increments", "'intermittent'")
          .one_of(kPolicies)
          .doc_text("one_shot: relative to the first complete checkpoint; consecutive: relative to the "
                    "previous checkpoint; intermittent: relative to the last complete one, which is renewed "
                    "when that is cheaper"),
      option::text("bits", "'none'")
          .one_of(kBits)
          .doc_text("bits per element of f32 rows on disk; none: exact; auto: chosen by expected_restores"),
      option::real("expected_restores", "1")
          .at_least(0)
          .doc_text("with bits = \"auto\": how often the run will be restored"),
      option::boolean("adaptive", "true")
          .doc_text("with 4 bits or fewer: narrow the quantization range where that lowers the error"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "checknrun",
      .summary = "increments with the rows that changed, optionally in 8 to 2 bits",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "every = 2\nbits = '4'",
       .other = "type = 'none'"},
  };
  explicit CheckNRun(const Options& options);

  void bind(RecoveryHost& host) override;
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  int keep() const override { return keep_; }
  void* query(std::string_view interface_id) override;
  void select(const SaveMoment& moment, SavePlan& plan) override;
  void on_save(const SaveResult& result) override;
  void account(const std::function<void(std::string_view, double)>& sink) override;

  std::span<const std::string_view> encodings() const override;
  void encode(std::string_view encoding, TensorView rows, std::vector<std::byte>& out) override;
  void decode(std::string_view encoding, std::span<const std::byte> stored, TensorView rows) override;

 private:
  struct Table {
    int parameter = 0;
    DirtyRows dirty;
    std::vector<std::int64_t> taken;  ///< by the save whose outcome is pending
  };
  std::int64_t every_;
  Increments increments_;
  int bits_;  ///< 0 = exact
  RowFit fit_;
  int keep_;
  bool background_, save_at_end_;
  std::vector<Table> tables_;
  NextSave pending_;
  double complete_bytes_ = 0, written_bytes_ = 0;
};

namespace {

constexpr std::array<std::string_view, 4> kEncodings = {"checknrun.q8", "checknrun.q4", "checknrun.q3",
                                                        "checknrun.q2"};

std::string_view encoding_of(int bits) {
  return bits == 0 ? std::string_view("plain")
                   : kEncodings[bits == 8 ? 0 : static_cast<std::size_t>(5 - bits)];
}
int bits_of(std::string_view encoding) {
  return encoding.back() - '0';
}

int chosen_bits(const Options& options) {
  const std::string_view bits = options.text("bits");
  if (bits == "none") return 0;
  return bits == "auto" ? bits_for_restores(options.real("expected_restores")) : bits.front() - '0';
}

}  // namespace

CheckNRun::CheckNRun(const Options& options)
    : every_(options.integer("every")),
      increments_(options.choice("increments", kPolicies)),
      bits_(chosen_bits(options)),
      fit_(options.boolean("adaptive") ? RowFit::kAdaptive : RowFit::kUniform),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {}

void CheckNRun::bind(RecoveryHost& host) {
  tables_.clear();
  for (const ParameterInfo& info : host.run().live->parameters()) {
    const RowTable* table = host.run().live->table(info.index);
    if (table != nullptr)
      tables_.push_back({info.index, DirtyRows(table->owned_first(), table->owned_last()), {}});
  }
}

void CheckNRun::on_accesses(int table, std::span<const std::int64_t> ids, std::span<const std::uint32_t>) {
  for (Table& mine : tables_) {
    if (mine.parameter == table) mine.dirty.set(ids);
  }
}

SavePlan CheckNRun::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps;
  plan.save = (moment.slot > 0 && moment.slot % every_ == 0) || moment.requested || (last && save_at_end_);
  plan.background = background_;
  return plan;
}

// Restored data has no history, so the first save of a continued run is complete.
void CheckNRun::select(const SaveMoment& moment, SavePlan& plan) {
  pending_ = moment.forced ? Increments::complete_save() : increments_.next();
  if (!moment.forced) {
    plan.everything = pending_.complete;
    plan.base_slot = pending_.base;
    plan.encoding = encoding_of(bits_);
  }
  for (Table& table : tables_) {
    std::vector<std::int64_t> rows = pending_.clears_dirty ? table.dirty.take() : table.dirty.ids();
    if (!plan.everything) plan.tables.push_back({table.parameter, false, rows});
    table.taken = pending_.clears_dirty ? std::move(rows) : std::vector<std::int64_t>();
  }
}

void CheckNRun::on_save(const SaveResult& result) {
  if (result.status == SaveStatus::kSkipped) return;  // nothing was selected
  const bool committed = result.status == SaveStatus::kCommitted;
  if (committed) {
    const auto bytes = static_cast<double>(result.all_bytes);
    if (pending_.complete) complete_bytes_ = bytes;
    written_bytes_ += bytes;
    increments_.committed(result.step, pending_, complete_bytes_ > 0 ? bytes / complete_bytes_ : 1);
  }
  for (Table& table : tables_) {
    if (!committed) table.dirty.or_back(table.taken);
    table.taken.clear();
  }
}

void CheckNRun::account(const std::function<void(std::string_view, double)>& sink) {
  sink("checkpoint_bytes", written_bytes_);
}

std::span<const std::string_view> CheckNRun::encodings() const {
  return kEncodings;
}

void CheckNRun::encode(std::string_view encoding, TensorView rows, std::vector<std::byte>& out) {
  const std::size_t width = rows.shape[1];
  const auto* values = static_cast<const float*>(rows.data);
  for (std::int64_t row = 0; row < rows.shape[0]; ++row, values += width)
    encode_row({values, width}, bits_of(encoding), fit_, out);
}

void CheckNRun::decode(std::string_view encoding, std::span<const std::byte> stored, TensorView rows) {
  const std::size_t width = rows.shape[1];
  auto* values = static_cast<float*>(rows.data);
  for (std::int64_t row = 0; row < rows.shape[0]; ++row, values += width) {
    const std::size_t taken = decode_row(stored, bits_of(encoding), {values, width});
    if (taken == 0)
      fail_run("row " + std::to_string(row) + " of a part encoded as '" + std::string(encoding) +
               "' is damaged or cut off");
    stored = stored.subspan(taken);
  }
  if (!stored.empty()) {
    fail_run("a part encoded as '" + std::string(encoding) + "' has " + std::to_string(stored.size()) +
             " bytes beyond its " + std::to_string(rows.shape[0]) + " rows");
  }
}

void* CheckNRun::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == SaveSelector::kId) return static_cast<SaveSelector*>(this);
  return interface_id == RowCodec::kId ? static_cast<RowCodec*>(this) : nullptr;
}

}  // namespace tenon::recovery_checknrun

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_checknrun",
                               .version = "0.1.0",
                               .summary = "increments with the rows that changed, optionally quantised"},
             tenon::recovery_checknrun::CheckNRun)
