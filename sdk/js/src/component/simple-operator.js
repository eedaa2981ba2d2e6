// The module of a component of world `simple-operator`: `weir-operator` is the operator's own module.

import "../globals.js";
import Type from "weir-operator";
import log from "weir:plugin/log";
import metrics from "weir:plugin/metrics";
import output from "weir:plugin/output";
import timers from "weir:plugin/timers";
import { component } from "../component.js";

export const { processor } = component(Type, {
  emit: output.emit,
  reject: output.reject,
  rejectBatch: output.rejectBatch,
  log: log.write,
  enabled: log.enabled,
  count: metrics.count,
  gauge: metrics.gauge,
  observe: metrics.observe,
  now: timers.now,
  wakeAt: timers.wakeAt,
});
