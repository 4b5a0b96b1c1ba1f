package validate

import "testing"

// reported logs a fleet's report of an order of the first account.
func (e *env) reported(external string, op Operation) {
	op.Account, op.Order = well, e.find(well, external).ID
	e.saw(op)
}

// refused lists a report of an order of the first account among the refused ones.
func (e *env) refused(external string, r Refused) {
	r.Order = e.find(well, external).ID
	e.facts.Refused = append(e.facts.Refused, r)
}

// carried gives an order of the first account to a courier.
func (e *env) carried(external, courier string) {
	o := e.find(well, external)
	o.Couriers = append(o.Couriers, courier)
}

func TestCheck_FleetsReports(t *testing.T) {
	t.Parallel()

	const ali, veli = "5320000001", "5320000002"

	checkAll(t, []breach{
		{"an acknowledged status that was never reached", ReportLost, func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 202})
		}},
		{"an acknowledged status that was reached", "", func(e *env) {
			e.reported("delivered", Operation{Kind: Progress, Reported: "PickedUp", Status: 202})
		}},
		{"an acknowledged status that was refused", "", func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 202})
			e.refused("failed", Refused{Kind: Progress, Reported: "Delivered"})
		}},
		{"an acknowledged status of which another one was refused", ReportLost, func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 202})
			e.refused("failed", Refused{Kind: Progress, Reported: "Delivering"})
		}},
		{"an acknowledged status, with a later one that was refused", "", func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "PickedUp", Status: 202})
			e.refused("failed", Refused{Kind: Progress, Reported: "Delivered"})
		}},
		{"an acknowledged assignment, with an acceptance that was refused", "", func(e *env) {
			e.reported("searching", Operation{Kind: Progress, Reported: "Assigned", Status: 202})
			e.refused("searching", Refused{Kind: Accept, Courier: ali})
		}},
		{"an acknowledged failure, with a delivery that was refused", ReportLost, func(e *env) {
			e.reported("cancelled", Operation{Kind: Progress, Reported: "Failed", Status: 202})
			e.refused("cancelled", Refused{Kind: Progress, Reported: "Delivered"})
		}},
		{"an acknowledged status, with a failure that was refused", ReportLost, func(e *env) {
			e.reported("cancelled", Operation{Kind: Progress, Reported: "Delivering", Status: 202})
			e.refused("cancelled", Refused{Kind: Progress, Reported: "Failed"})
		}},
		{"a status that was refused for another order", ReportLost, func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 202})
			e.refused("cancelled", Refused{Kind: Progress, Reported: "Delivered"})
		}},
		{"a status that was not acknowledged", "", func(e *env) {
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 409, Code: "ORDER_ENDED"})
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered", Status: 503, Code: "SERVICE_UNAVAILABLE"})
			e.reported("failed", Operation{Kind: Progress, Reported: "Delivered"})
		}},
		{"an acknowledged status of an order that is nowhere", LostOrder, func(e *env) {
			id := e.find(well, "searching").ID
			e.unasked("searching")
			e.reported("searching", Operation{Kind: Progress, Reported: "Assigned", Status: 202})
			e.erase(id)
		}},
		{"a 500 to a fleet", ServerError, func(e *env) {
			e.reported("failed", Operation{Kind: Accept, Courier: ali, Status: 500, Code: "INTERNAL_ERROR"})
		}},
		{"a courier who was answered 200 and never had the order", ReportLost, func(e *env) {
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
		}},
		{"a courier who was swapped in after an acceptance that was refused", "", func(e *env) {
			e.reported("cancelled", Operation{Kind: Swap, Courier: ali, Status: 200})
			e.refused("cancelled", Refused{Kind: Accept, Courier: ali})
		}},
		{"a courier who accepted, with a swap to the same one refused", ReportLost, func(e *env) {
			e.reported("searching", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.refused("searching", Refused{Kind: Swap, Courier: ali})
		}},
		{"a courier who accepted, with a swap to the same one and a status refused", "", func(e *env) {
			e.reported("searching", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.refused("searching", Refused{Kind: Progress, Reported: "PickingUp"})
			e.refused("searching", Refused{Kind: Swap, Courier: ali})
		}},
		{"a courier who accepted an assigned order, with a swap to the same one refused", "", func(e *env) {
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.refused("delivered", Refused{Kind: Swap, Courier: ali})
		}},
		{"a courier who accepted an assigned order, with a swap to another one refused", ReportLost, func(e *env) {
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.refused("delivered", Refused{Kind: Swap, Courier: veli})
		}},
		{"a courier who accepted, with a swap to another one and a status refused", ReportLost, func(e *env) {
			e.reported("cancelled", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.refused("cancelled", Refused{Kind: Progress, Reported: "PickingUp"})
			e.refused("cancelled", Refused{Kind: Swap, Courier: veli})
		}},
		{"a courier who was swapped in, with another one's acceptance refused", ReportLost, func(e *env) {
			e.reported("cancelled", Operation{Kind: Swap, Courier: ali, Status: 200})
			e.refused("cancelled", Refused{Kind: Accept, Courier: veli})
		}},
		{"a courier who was answered 200 and had the order", "", func(e *env) {
			e.carried("delivered", ali)
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.reported("delivered", Operation{Kind: Accept, Courier: veli, Status: 409, Code: "JOB_TAKEN"})
		}},
		{"a swap that was answered 200 and never happened", ReportLost, func(e *env) {
			e.carried("delivered", ali)
			e.reported("delivered", Operation{Kind: Swap, Courier: veli, Status: 200})
		}},
		{"two couriers who were answered that it is theirs", JobTakenTwice, func(e *env) {
			e.carried("delivered", ali)
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.reported("delivered", Operation{Kind: Accept, Courier: veli, Status: 200})
		}},
		{"a second courier after a swap whose answer was lost", "", func(e *env) {
			e.carried("delivered", ali)
			e.refused("delivered", Refused{Kind: Accept, Courier: veli})
			e.reported("delivered", Operation{Kind: Accept, Courier: ali, Status: 200})
			e.reported("delivered", Operation{Kind: Swap, Courier: veli})
			e.reported("delivered", Operation{Kind: Accept, Courier: veli, Status: 200})
		}},
	})
}
