// The module of a component of world `stateful-operator`: `weir-operator` is the operator's own module.

import "../globals.js";
import Type from "weir-operator";
import log from "weir:plugin/log";
import metrics from "weir:plugin/metrics";
import output from "weir:plugin/output";
import snapshots from "weir:plugin/snapshots";
import timers from "weir:plugin/timers";
import { component } from "../component.js";

export const { processor, checkpoint } = component(Type, {
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
  write: snapshots.write,
  read: snapshots.read,
});
