"""A small DICOM whole-slide image, written with pydicom."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRLittleEndian, VLWholeSlideMicroscopyImageStorage, generate_uid

from gigaslide.geometry import grid

TILE_PX = 64


def write_dicom(
    folder: Path,
    *levels: np.ndarray,
    mpp_um_per_px: float = 0.5,
    photometric: str = "RGB",
    encode: Callable[[np.ndarray], bytes] | None = None,
    syntax: UID = ExplicitVRLittleEndian,
) -> Path:
    """Write one file per level, tiles in full; return the path of level 0's.

    `encode` compresses a tile in the way that `syntax` names; without it tiles are not compressed.
    """
    folder.mkdir(exist_ok=True)
    study, series, frame_of_reference = (generate_uid() for _ in range(3))
    for number, pixels in enumerate(levels):
        height, width = pixels.shape[:2]
        scale = levels[0].shape[0] / height
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = VLWholeSlideMicroscopyImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        meta.TransferSyntaxUID = syntax
        data = Dataset()
        data.file_meta = meta
        data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
        data.StudyInstanceUID, data.SeriesInstanceUID = study, series
        data.FrameOfReferenceUID = frame_of_reference
        data.Modality = "SM"
        original, resampled = ("ORIGINAL", "NONE") if number == 0 else ("DERIVED", "RESAMPLED")
        data.ImageType = [original, "PRIMARY", "VOLUME", resampled]
        data.DimensionOrganizationType = "TILED_FULL"
        data.TotalPixelMatrixColumns, data.TotalPixelMatrixRows = width, height
        data.TotalPixelMatrixFocalPlanes = 1
        data.NumberOfOpticalPaths = 1
        data.Rows = data.Columns = TILE_PX
        data.SamplesPerPixel, data.PhotometricInterpretation, data.PlanarConfiguration = 3, photometric, 0
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 8, 8, 7, 0
        measures = Dataset()
        measures.PixelSpacing = [mpp_um_per_px * scale / 1000] * 2
        measures.SliceThickness = 0.001
        shared = Dataset()
        shared.PixelMeasuresSequence = [measures]
        data.SharedFunctionalGroupsSequence = [shared]
        path = Dataset()
        path.OpticalPathIdentifier = "1"
        data.OpticalPathSequence = [path]
        frames = []
        for window in grid((height, width), (TILE_PX, TILE_PX)):
            tile = np.zeros((TILE_PX, TILE_PX, 3), np.uint8)
            part = pixels[window.slices]
            tile[: part.shape[0], : part.shape[1]] = part
            frames.append(tile)
        data.NumberOfFrames = len(frames)
        if encode is None:
            data.PixelData = b"".join(frame.tobytes() for frame in frames)
        else:
            data.PixelData = encapsulate([encode(frame) for frame in frames])
            data["PixelData"].VR = "OB"
        data.save_as(folder / f"level-{number}.dcm", enforce_file_format=True)
    return folder / "level-0.dcm"
