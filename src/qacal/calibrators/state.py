"""Fitted calibrators as plain values and arrays, and back: what is saved of them, without pickle."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np

from qacal.calibrators.base import Calibrator
from qacal.calibrators.bin_maps import BinMaps
from qacal.calibrators.binning import QABinning, ScalingBinning, ScalingQABinning, UniformMassBinning
from qacal.calibrators.hierarchical import HierarchicalScaling, LogisticMaps
from qacal.calibrators.identity import Identity
from qacal.calibrators.isotonic import IsotonicCalibration, IsotonicMaps
from qacal.calibrators.platt import LogisticMap, PlattScaling
from qacal.calibrators.step_binning import StepBinning
from qacal.calibrators.tree_binning import TreeBinning
from qacal.calibrators.tree_scaling import TreeMaps, TreeScaling
from qacal.errors import InputError
from qacal.storage.frozen import Arrays, Plain, checked_fields, flatten, unflatten

CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.__name__: kind
    for kind in (
        Identity,
        PlattScaling,
        IsotonicCalibration,
        UniformMassBinning,
        ScalingBinning,
        QABinning,
        ScalingQABinning,
        HierarchicalScaling,
        TreeScaling,
        TreeBinning,
        StepBinning,
    )
}
"""Every calibrator that can be saved, by name. A file chooses among these and nothing else."""


def calibrator_state(calibrator: Calibrator) -> tuple[Plain, Arrays]:
    """Return a fitted calibrator as plain values and arrays.

    >>> plain, arrays = calibrator_state(PlattScaling().fit([0.5, 0.9, 0.9], [0, 1, 0]))
    >>> plain["kind"], plain["parameters"], plain["maps"]["rows"], arrays
    ('PlattScaling', {'feature': 'confidence'}, 3, {})
    """
    name = type(calibrator).__name__
    if CALIBRATORS.get(name) is not type(calibrator):
        raise InputError(f"{name} is not one of qacal's calibrators; it can save {', '.join(CALIBRATORS)}.")
    given = calibrator.get_params().items()
    parameters = {key: value.item() if isinstance(value, np.generic) else value for key, value in given}
    maps, arrays = flatten(calibrator.fitted_maps())
    return {"kind": name, "parameters": parameters, "maps": maps}, arrays


def calibrator_from_state(plain: Any, arrays: Arrays) -> Calibrator:
    """Return the calibrator that :func:`calibrator_state` was given; refuse content that no fit can have made."""
    if not isinstance(plain, dict) or set(plain) != {"kind", "parameters", "maps"}:
        raise InputError("a calibrator has a kind, parameters and maps, and nothing else; this one does not.")
    kind = CALIBRATORS.get(plain["kind"]) if isinstance(plain["kind"], str) else None
    if kind is None:
        raise InputError(f"the calibrator is {plain['kind']!r:.80}; this qacal knows {', '.join(CALIBRATORS)}.")
    known = get_type_hints(kind.__init__)
    hints = {name: known[name] for name in kind().get_params()}
    calibrator = kind(**checked_fields(hints, plain["parameters"], "parameters"))
    calibrator.maps_ = unflatten(get_type_hints(kind)["maps_"], plain["maps"], arrays)
    calibrator.maps_.validate()
    _require_agreement(calibrator)
    return calibrator


def _require_agreement(calibrator: Calibrator) -> None:
    """Refuse parameters that are not those of the fit: they decide how rows are read."""
    given = calibrator.get_params()
    for name, fitted in _fitted_parameters(calibrator.maps_).items():
        # Tallies may bring a grid with them that the calibrator did not ask for.
        if name in given and given[name] != fitted and not (name == "resolution" and given[name] is None):
            raise InputError(f"{name} is {given[name]!r}, and the maps were fitted with {fitted!r}; fit again.")
    is_fixed = isinstance(calibrator.maps_, BinMaps) and calibrator.maps_.certificate.kind == "fixed"
    if is_fixed != isinstance(calibrator, StepBinning):
        raise InputError('the certificate "fixed" goes with StepBinning alone, and StepBinning with it; fit again.')
    has_groups = getattr(calibrator.maps_, "grouping", None) is not None
    if has_groups and not calibrator.properties.uses_groups:
        raise InputError("the maps have groups, which this calibrator does not use; fit again.")


def _fitted_parameters(maps: Any) -> Plain:
    """Return those parameters that can be read off the maps."""
    if isinstance(maps, LogisticMap):
        return {"feature": maps.feature}
    if isinstance(maps, LogisticMaps | TreeMaps):
        return {"feature": maps.feature, "max_depth": maps.max_depth}
    if isinstance(maps, IsotonicMaps):
        return {} if maps.grouping is None else {"max_depth": maps.max_depth}
    if not isinstance(maps, BinMaps):
        return {}
    found = {"max_depth": maps.max_depth, "alpha": maps.certificate.alpha, "resolution": maps.resolution}
    if maps.is_jittered:
        return found | {"ties": "jitter"}
    return found | {"ties": "merge", "certificate": maps.certificate.kind}
