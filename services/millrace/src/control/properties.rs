//! Properties of a message as the API shows them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millrace_control::{MessageProperties, UserProperty};
use millrace_mqtt::{Properties, Property};

pub(super) fn shown(properties: Properties<'_>) -> MessageProperties {
    let mut shown = MessageProperties::default();
    for property in properties.iter() {
        match property {
            Property::ContentType(value) => shown.content_type = Some(value.into()),
            Property::ResponseTopic(value) => shown.response_topic = Some(value.into()),
            Property::CorrelationData(value) => {
                shown.correlation_data_base64 = Some(BASE64_STANDARD.encode(value));
            }
            Property::MessageExpiryInterval(seconds) => shown.message_expiry_s = Some(seconds),
            Property::UserProperty(name, value) => {
                shown.user_properties.push(UserProperty { name: name.into(), value: value.into() });
            }
            _ => {}
        }
    }
    shown
}

/// Bytes of their texts.
pub(super) fn weight(properties: &MessageProperties) -> usize {
    let MessageProperties { content_type, response_topic, correlation_data_base64, user_properties, .. } =
        properties;
    let texts = [content_type, response_topic, correlation_data_base64];
    let standard: usize = texts.into_iter().flatten().map(String::len).sum();
    standard + user_properties.iter().map(|one| one.name.len() + one.value.len()).sum::<usize>()
}
