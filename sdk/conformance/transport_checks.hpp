// Checks of transports in a second file: how operations end on errors, and what they allocate.
#pragma once

namespace tenon::conformance {

class Subject;

void names_the_late_rank(Subject& subject);
void cancels_all(Subject& subject);
void cancels_a_process(Subject& subject);
void waits_as_a_group_asks(Subject& subject);
void notices_disagreement(Subject& subject);
void refuses_old_epochs(Subject& subject);
void transport_allocates_nothing(Subject& subject);

}  // namespace tenon::conformance
