//! Encodes 1.10 requests in the layouts of earlier releases.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message;

use super::Release;
use super::messages::*;

/// Alternative encodings of the same data in releases up to 1.7.
#[derive(Debug, Clone, Copy, Default)]
pub struct Way {
    /// Whether the tables have no leading zero element, unless it is referenced. In 1.3 they always have it, since
    /// index 0 means none.
    pub bare: bool,
    /// Whether to omit the value if each timestamp counts 1; otherwise the value is the number of timestamps.
    pub no_totals: bool,
    /// Whether samples of 1.3 list their locations individually instead of as a range.
    pub one_by_one: bool,
    /// Whether timestamps of 1.3 samples are in milliseconds.
    pub milliseconds: bool,
}

impl Way {
    /// Tables without zero elements, which make layouts easiest to distinguish.
    pub const BARE: Self = Self { bare: true, no_totals: false, one_by_one: false, milliseconds: false };
}

/// The same data in each earlier layout, oldest first, with the versions that use it.
pub fn earlier(request: &ExportProfilesServiceRequest) -> [(&'static str, Vec<u8>); 6] {
    use Release::*;
    [("1.3", V1_3), ("1.4", V1_5), ("1.6", V1_6), ("1.7", V1_7), ("1.8", V1_8), ("1.9", V1_9)]
        .map(|(name, release)| (name, release.write(request)))
}

/// Reduces the data to the part that an earlier release can express: no references to all-zero elements, one unit for
/// all attributes with the same key, and no value of 1 with a single timestamp.
pub fn plain(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    let dictionary = request.dictionary.get_or_insert_default();
    let mut units: Vec<(i32, i32)> = Vec::new();
    for attribute in &mut dictionary.attribute_table {
        let key = dictionary.string_table[attribute.key_strindex as usize].clone();
        let same = |of: &&(i32, i32)| dictionary.string_table[of.0 as usize] == key;
        attribute.unit_strindex = match units.iter().find(same) {
            _ if key.is_empty() => 0,
            Some((_, unit)) => *unit,
            None => {
                units.push((attribute.key_strindex, attribute.unit_strindex));
                attribute.unit_strindex
            }
        };
    }
    let text = |index: i32| dictionary.string_table[index as usize].is_empty();
    let zero = |of: &proto::KeyValueAndUnit| text(of.key_strindex) && of.value.is_none() && text(of.unit_strindex);
    let zeros: Vec<bool> = dictionary.attribute_table.iter().map(zero).collect();
    let attributes = |list: &mut Vec<i32>| list.retain(|&index| index != 0 && !zeros[index as usize]);
    dictionary.mapping_table.iter_mut().for_each(|of| attributes(&mut of.attribute_indices));
    dictionary.location_table.iter_mut().for_each(|of| attributes(&mut of.attribute_indices));
    let unless = |index: &mut i32, zero: bool| *index = if zero { 0 } else { *index };
    for of in &mut dictionary.location_table {
        let mapping = &dictionary.mapping_table[of.mapping_index as usize];
        let unnamed = dictionary.string_table[mapping.filename_strindex as usize].is_empty();
        let rest = proto::Mapping { filename_strindex: 0, ..mapping.clone() };
        unless(&mut of.mapping_index, unnamed && rest == proto::Mapping::default());
        for line in &mut of.lines {
            let of = &dictionary.function_table[line.function_index as usize];
            let names = [of.name_strindex, of.system_name_strindex, of.filename_strindex];
            let unnamed = names.iter().all(|&name| dictionary.string_table[name as usize].is_empty());
            unless(&mut line.function_index, unnamed && of.start_line == 0);
        }
    }
    let zero_location: Vec<bool> =
        dictionary.location_table.iter().map(|of| *of == proto::Location::default()).collect();
    for of in &mut dictionary.stack_table {
        of.location_indices.iter_mut().for_each(|index| unless(index, zero_location[*index as usize]));
    }
    for resource in &mut request.resource_profiles {
        for scope in &mut resource.scope_profiles {
            for profile in &mut scope.profiles {
                attributes(&mut profile.attribute_indices);
                for sample in &mut profile.samples {
                    attributes(&mut sample.attribute_indices);
                    let empty = dictionary.stack_table[sample.stack_index as usize].location_indices.is_empty();
                    unless(&mut sample.stack_index, empty);
                    if sample.timestamps_unix_nano.len() == 1 && sample.values == [1] {
                        sample.values.clear();
                    }
                }
            }
        }
    }
    request
}

impl Release {
    /// Encodes the data in this release's layout, with [`Way::BARE`].
    pub fn write(self, request: &ExportProfilesServiceRequest) -> Vec<u8> {
        self.write_as(request, Way::BARE)
    }

    /// Encodes the data in this release's layout.
    pub fn write_as(self, request: &ExportProfilesServiceRequest, way: Way) -> Vec<u8> {
        self.write_with(request, way, &|_| {})
    }

    /// Encodes the data in this release's layout, after changing each profile.
    pub fn write_with(
        self,
        request: &ExportProfilesServiceRequest,
        way: Way,
        change: &dyn Fn(&mut EarlierProfile),
    ) -> Vec<u8> {
        let way = Way { bare: way.bare && self != Self::V1_3, ..way };
        let dictionary = request.dictionary.clone().unwrap_or_default();
        let tables = if self < Self::V1_8 { tables(&dictionary, way) } else { EarlierTables::default() };
        let profile = |of: &proto::Profile| {
            let mut profile = match self < Self::V1_8 {
                true => self.profile_of(&tables, &dictionary, of, way),
                false => current(of),
            };
            change(&mut profile);
            self.profile(&profile)
        };
        let scope = |of: &proto::ScopeProfiles| {
            let mut out = self.fields();
            out.messages(&[1; 5], of.scope.as_slice(), Message::encode_to_vec);
            out.messages(&[2; 5], &of.profiles, profile);
            out.text(&[3; 5], of.schema_url.as_bytes());
            out.bytes
        };
        let resource = |of: &proto::ResourceProfiles| {
            let mut out = self.fields();
            out.messages(&[1; 5], of.resource.as_slice(), Message::encode_to_vec);
            out.messages(&[2; 5], &of.scope_profiles, scope);
            out.text(&[3; 5], of.schema_url.as_bytes());
            out.bytes
        };
        let mut out = self.fields();
        out.messages(&[1; 5], &request.resource_profiles, resource);
        match self {
            Self::V1_6 => out.tables([2, 3, 4, 5, 6, 7, 8], &tables),
            Self::V1_7 => out.message(&[2; 5], &self.dictionary(&tables)),
            _ => out.messages(&[0, 0, 0, 2, 2], request.dictionary.as_slice(), Message::encode_to_vec),
        }
        out.bytes
    }

    /// Converts a profile to the form of releases up to 1.7.
    fn profile_of(
        self,
        tables: &EarlierTables,
        dictionary: &proto::ProfilesDictionary,
        of: &proto::Profile,
        way: Way,
    ) -> EarlierProfile {
        let mut profile = current(of);
        let skip = i64::from(way.bare);
        for (sample, of) in profile.samples.iter_mut().zip(&of.samples) {
            let stack = indices(&dictionary.stack_table[of.stack_index as usize].location_indices, 0);
            let start = profile.location_indices.len() as i64;
            profile.location_indices.extend(&stack);
            if way.one_by_one {
                sample.location_index = stack;
            } else {
                (sample.locations_start_index, sample.locations_length) = (start, stack.len() as i64);
            }
            if of.values.is_empty() && !way.no_totals {
                sample.values = vec![of.timestamps_unix_nano.len() as i64];
            }
            if way.milliseconds {
                sample.timestamps_unix_nano.iter_mut().for_each(|time| *time /= 1_000_000);
            }
            sample.attribute_indices = indices(&of.attribute_indices, skip);
            sample.link_index = (of.link_index != 0).then(|| i64::from(of.link_index) - skip);
        }
        profile.attribute_indices = indices(&of.attribute_indices, skip);
        if self <= Self::V1_4 {
            let own = |index: i64| tables.attribute_table[index as usize].clone();
            profile.attributes = std::mem::take(&mut profile.attribute_indices).into_iter().map(own).collect();
        }
        if self <= Self::V1_5 {
            profile.tables = tables.clone();
        }
        profile
    }
}

/// Keeps the fields of a 1.10 profile, and marks its values as deltas, by a field that existed up to 1.8.
fn current(of: &proto::Profile) -> EarlierProfile {
    let value_type = |of: &proto::ValueType| EarlierValueType {
        type_strindex: of.type_strindex.into(),
        unit_strindex: of.unit_strindex.into(),
        aggregation_temporality: 1,
    };
    let sample = |of: &proto::Sample| EarlierSample {
        stack_index: of.stack_index.into(),
        values: of.values.clone(),
        attribute_indices: indices(&of.attribute_indices, 0),
        link_index: Some(of.link_index.into()),
        timestamps_unix_nano: of.timestamps_unix_nano.clone(),
        ..EarlierSample::default()
    };
    EarlierProfile {
        sample_type: of.sample_type.iter().map(value_type).collect(),
        samples: of.samples.iter().map(sample).collect(),
        time_unix_nano: of.time_unix_nano,
        duration_nano: of.duration_nano,
        period_type: of.period_type.as_ref().map(value_type),
        period: of.period,
        profile_id: of.profile_id.clone(),
        dropped_attributes_count: of.dropped_attributes_count,
        original_payload_format: of.original_payload_format.clone(),
        original_payload: of.original_payload.clone(),
        attribute_indices: indices(&of.attribute_indices, 0),
        ..EarlierProfile::default()
    }
}

/// Converts indices to tables without their first `skip` elements.
fn indices(list: &[i32], skip: i64) -> Vec<i64> {
    list.iter().map(|&index| i64::from(index) - skip).collect()
}

/// Converts the tables to the form of releases up to 1.7.
fn tables(of: &proto::ProfilesDictionary, way: Way) -> EarlierTables {
    let skip = usize::from(way.bare);
    let moved = |list: &[i32]| indices(list, skip as i64);
    let mapping = |of: &proto::Mapping| EarlierMapping {
        memory_start: of.memory_start,
        memory_limit: of.memory_limit,
        file_offset: of.file_offset,
        filename_strindex: of.filename_strindex.into(),
        attribute_indices: moved(&of.attribute_indices),
        ..EarlierMapping::default()
    };
    let location = |of: &proto::Location| EarlierLocation {
        mapping_index: (of.mapping_index != 0).then(|| i64::from(of.mapping_index) - skip as i64),
        address: of.address,
        lines: of.lines.clone(),
        attribute_indices: moved(&of.attribute_indices),
        ..EarlierLocation::default()
    };
    let function = |of: &proto::Function| EarlierFunction {
        name_strindex: of.name_strindex.into(),
        system_name_strindex: of.system_name_strindex.into(),
        filename_strindex: of.filename_strindex.into(),
        start_line: of.start_line,
    };
    let attribute = |attribute: &proto::KeyValueAndUnit| KeyValue {
        key: of.string_table[attribute.key_strindex as usize].clone(),
        value: attribute.value.clone(),
        key_strindex: 0,
    };
    let with_unit = of.attribute_table.iter().filter(|of| of.unit_strindex != 0);
    let unit = |of: &proto::KeyValueAndUnit| AttributeUnit {
        attribute_key_strindex: of.key_strindex.into(),
        unit_strindex: of.unit_strindex.into(),
    };
    EarlierTables {
        mapping_table: of.mapping_table.iter().skip(skip).map(mapping).collect(),
        location_table: of.location_table.iter().map(location).collect(),
        function_table: of.function_table.iter().map(function).collect(),
        link_table: of.link_table.iter().skip(skip).cloned().collect(),
        string_table: of.string_table.clone(),
        attribute_table: of.attribute_table.iter().skip(skip).map(attribute).collect(),
        attribute_units: with_unit.map(unit).collect(),
    }
}
