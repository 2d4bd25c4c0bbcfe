"""Checks ONNX models with onnx.checker and runs them with onnxruntime: requests and results as in onnx_check.py."""

import json
import sys

import numpy
import onnx
import onnxruntime


def run(path, inputs):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {k: numpy.array(v["data"], numpy.float32).reshape(v["shape"]) for k, v in inputs.items()}
    names = [o.name for o in session.get_outputs()]
    values = dict(zip(names, session.run(names, feeds)))
    outputs = {k: {"shape": list(v.shape), "data": v.ravel().tolist()} for k, v in values.items()}
    return {"meta": session.get_modelmeta().custom_metadata_map, "outputs": outputs}


print(json.dumps([run(r["path"], r["inputs"]) for r in json.load(sys.stdin)]))
